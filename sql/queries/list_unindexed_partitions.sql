-- Partitions of the feed without the index for polling, that index's name for each, and whether an attempt to make it has failed.
SELECT p.oid::regclass::text AS partition, n.short AS index, n.name AS qualified, coalesce(NOT x.indisvalid, false) AS broken
FROM pg_inherits AS i
JOIN pg_class AS p ON p.oid = i.inhrelid
CROSS JOIN LATERAL (
  SELECT format('%I.%I', p.relnamespace::regnamespace, p.relname || '_seq_idx') AS name,
    format('%I', p.relname || '_seq_idx') AS short) AS n
LEFT JOIN pg_index AS x ON x.indexrelid = to_regclass(n.name)
WHERE i.inhparent = 'outbox_feed'::regclass
  AND NOT EXISTS (
    SELECT FROM pg_index AS o JOIN pg_inherits AS h ON h.inhrelid = o.indexrelid
    WHERE o.indrelid = p.oid AND h.inhparent = to_regclass('outbox_feed_seq_idx'))
ORDER BY p.relname
