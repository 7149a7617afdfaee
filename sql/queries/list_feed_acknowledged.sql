-- Rows of the feed that Kafka had before polling began. $1 behind this sequence number, $2 up to this one: bigint, $3 rows at most: int,
-- $4 the snapshot that sees them: pg_snapshot text, $5 the timeline that it belongs to: int.
SELECT f.seq, f.id::text, f.ts::text
FROM outbox_feed AS f
WHERE f.seq > $1 AND f.seq <= $2 AND pg_visible_in_snapshot(f.xid, (SELECT $4::text::pg_snapshot))
  AND $5 = (SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int)
ORDER BY f.seq
LIMIT $3
