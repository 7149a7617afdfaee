-- Rows of the feed that Kafka had before polling began. $1 behind this sequence number: bigint, $2 rows at most: int,
-- $3 the snapshot that sees them: pg_snapshot text, $4 the timeline that it belongs to: int.
SELECT f.seq, f.id::text, f.ts::text
FROM outbox_feed AS f
WHERE f.seq > $1 AND pg_visible_in_snapshot(f.xid, $3::text::pg_snapshot)
  AND $4 = (SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int)
ORDER BY f.seq
LIMIT $2
