-- The transactions that keep a new replication slot waiting, oldest first.
SELECT pid, state, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age_s, application_name
FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY xact_start
LIMIT 5
