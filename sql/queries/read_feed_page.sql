-- Rows of the feed behind a sequence number, in its order, each column as PostgreSQL's text. $1 behind this one, $2 up to this one: bigint,
-- $3 rows at most: int, $4 bytes that the last row may pass: bigint, $5 number of shards: int, $6 those that are wanted: int[],
-- $7 snapshot whose rows are left out: pg_snapshot text or null, $8 the timeline that it belongs to: int.
SELECT id, aggregatetype, aggregateid, type, payload, tracingspancontext, seq, ts, written
FROM (
  SELECT p.*, sum(coalesce(octet_length(p.payload), 0) + coalesce(octet_length(p.tracingspancontext), 0))
    OVER (ORDER BY p.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
  FROM (
    SELECT f.id::text, f.aggregatetype, f.aggregateid, f.type, f.payload::text AS payload, f.tracingspancontext, f.seq::text,
      f.ts::text, extract(epoch FROM f.ts)::float8 AS written, f.seq AS number
    FROM outbox_feed AS f
    WHERE f.seq > $1 AND f.seq <= $2
      AND ($5 = 1 OR (hashtextextended(f.aggregateid COLLATE "C", 0) & 2147483647) % $5 = ANY ($6::int[]))
      AND ($7::text IS NULL OR NOT pg_visible_in_snapshot(f.xid, (SELECT $7::text::pg_snapshot))
        OR $8 <> (SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int))
    ORDER BY f.seq
    LIMIT $3
  ) AS p
) AS q
WHERE coalesce(bytes_before, 0) < $4
ORDER BY number
