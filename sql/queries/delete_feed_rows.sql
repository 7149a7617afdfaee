-- Deletes rows of the feed that Kafka has. $1 seq: bigint[], $2 id: uuid text[], $3 ts: timestamp text[]. By all three: after a failover
-- another row may have been given the same sequence number.
DELETE FROM outbox_feed AS f
USING unnest($1::bigint[], $2::text[]::uuid[], $3::text[]::timestamp[]) AS a (seq, id, ts)
WHERE f.seq = a.seq AND f.id = a.id AND f.ts = a.ts
