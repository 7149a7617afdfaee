-- The first rows of the feed within some sequence numbers, by what they are deleted by. $1 behind this one, $2 up to this one: bigint,
-- $3 rows at most: int, $4 number of shards: int, $5 those that are wanted: int[], $6 snapshot whose rows are left out: pg_snapshot text
-- or null, $7 the timeline that it belongs to: int.
SELECT f.seq, f.id::text, f.ts::text
FROM outbox_feed AS f
WHERE f.seq > $1 AND f.seq <= $2
  AND ($4 = 1 OR (hashtextextended(f.aggregateid COLLATE "C", 0) & 2147483647) % $4 = ANY ($5::int[]))
  AND ($6::text IS NULL OR NOT pg_visible_in_snapshot(f.xid, (SELECT $6::text::pg_snapshot))
    OR $7 <> (SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int))
ORDER BY f.seq
LIMIT $3
