-- How far dropping the feed's oldest day partition is behind, what keeps dead rows and since when, and the age of the oldest message; in seconds. $1 the feed is kept interval.
SELECT
  coalesce((SELECT greatest(extract(epoch FROM clock_timestamp() - $1::interval - min(p.ends)), 0) FROM feed_partitions() AS p), 0)::float8 AS feed_behind,
  greatest(
    (SELECT extract(epoch FROM clock_timestamp() - min(a.xact_start)) FROM pg_stat_activity AS a
     WHERE a.backend_xmin IS NOT NULL AND a.backend_type <> 'autovacuum worker' AND a.pid <> pg_backend_pid()),
    (SELECT extract(epoch FROM clock_timestamp() - min(p.prepared)) FROM pg_prepared_xacts AS p), 0)::float8 AS oldest_transaction,
  greatest(
    (SELECT max(age(a.backend_xmin)) FROM pg_stat_activity AS a WHERE a.backend_type <> 'autovacuum worker'),
    (SELECT max(age(p.transaction)) FROM pg_prepared_xacts AS p),
    (SELECT max(age(s.xmin)) FROM pg_replication_slots AS s), 0)::bigint AS xmin_behind,
  coalesce((SELECT extract(epoch FROM clock_timestamp() - o.created) FROM email_outbox AS o ORDER BY o.id LIMIT 1), 0)::float8 AS oldest_message;
