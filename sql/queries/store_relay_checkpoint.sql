-- Stores the position that is confirmed next; never goes back within a cluster, but for 0, which marks a recovery.
-- $1 slot: text, $2 lsn: bigint, $3 system id: text, $4 timeline: int.
INSERT INTO relay_checkpoint AS c (slot, lsn, system_id, timeline)
VALUES ($1, '0/0'::pg_lsn + $2::bigint, $3, $4)
ON CONFLICT (slot) DO UPDATE SET
  lsn = CASE
    WHEN excluded.lsn = '0/0' OR c.system_id <> excluded.system_id THEN excluded.lsn
    ELSE greatest(c.lsn, excluded.lsn)
  END,
  system_id = excluded.system_id, timeline = excluded.timeline, stored = excluded.stored
