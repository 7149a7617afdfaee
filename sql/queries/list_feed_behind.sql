-- The first rows of the feed up to a sequence number, by what they are deleted by. $1 up to this one: bigint, $2 rows at most: int,
-- $3 number of shards: int, $4 those that are wanted: int[], $5 snapshot whose rows are left out: pg_snapshot text or null,
-- $6 the timeline that it belongs to: int.
SELECT f.seq, f.id::text, f.ts::text
FROM outbox_feed AS f
WHERE f.seq <= $1
  AND ($3 = 1 OR (hashtextextended(f.aggregateid COLLATE "C", 0) & 2147483647) % $3 = ANY ($4::int[]))
  AND ($5::text IS NULL OR NOT pg_visible_in_snapshot(f.xid, $5::text::pg_snapshot)
    OR $6 <> (SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int))
ORDER BY f.seq
LIMIT $2
