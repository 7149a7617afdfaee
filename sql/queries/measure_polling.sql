-- How relays that poll share the keys, and since when the oldest row waits for them, in seconds. Rows are deleted once Kafka has them; without the index on the sequence, which polling has, this reads the feed. No parameters.
SELECT count(*)::int AS shards, (count(*) FILTER (WHERE s.expires > clock_timestamp()))::int AS held,
  (SELECT extract(epoch FROM clock_timestamp() - (f.ts AT TIME ZONE 'UTC'))::float8 FROM outbox_feed AS f ORDER BY f.seq LIMIT 1) AS oldest_age
FROM relay_shard AS s
