-- The state of the relay's replication slot; no row if there is none. $1 slot: text.
SELECT
  plugin, database = current_database() AS here, active_pid, wal_status, safe_wal_size,
  (confirmed_flush_lsn - '0/0')::bigint AS confirmed,
  coalesce(pg_current_wal_lsn() - confirmed_flush_lsn, 0)::bigint AS lag_bytes,
  coalesce(pg_current_wal_lsn() - restart_lsn, 0)::bigint AS retained_bytes,
  pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size'), '-1')) AS keep_bytes
FROM pg_replication_slots
WHERE slot_name = $1
