-- The relay's slot with whatever columns this PostgreSQL has, as JSON, and who reads it; no row without it. $1 slot: text.
SELECT
  to_jsonb(s) AS slot,
  s.database = current_database() AS here,
  extract(epoch FROM clock_timestamp() - (to_jsonb(s) ->> 'inactive_since')::timestamptz)::float8 AS inactive_s,
  (SELECT application_name FROM pg_stat_activity WHERE pid = s.active_pid) AS holder,
  pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn)::bigint AS retained_bytes
FROM pg_replication_slots AS s
WHERE s.slot_name = $1
