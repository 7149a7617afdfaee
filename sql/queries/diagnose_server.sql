-- What the doctor asks of the server, one row; slots and senders are those that are not the relay's. $1 slot of the relay: text.
SELECT
  current_setting('server_version_num')::int AS version,
  pg_is_in_recovery() AS in_recovery,
  current_setting('default_transaction_read_only') = 'on' AS read_only,
  current_setting('wal_level') AS wal_level,
  current_setting('max_replication_slots')::int AS max_slots,
  (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> $1)::int AS slots,
  current_setting('max_wal_senders')::int AS max_senders,
  (SELECT count(*) FROM pg_stat_replication WHERE application_name NOT IN ('mailstreams relay', 'mailstreams doctor'))::int AS senders,
  current_setting('fsync') AS fsync,
  current_setting('full_page_writes') AS full_page_writes,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('synchronous_standby_names') AS synchronous_standby_names,
  current_setting('synchronized_standby_slots', true) AS synchronized_standby_slots,
  -- Whoever streams and is neither at a logical slot nor a backup; the state is hidden from ordinary roles.
  (SELECT count(*) FROM pg_stat_replication AS r
   WHERE coalesce(r.state, '') NOT IN ('backup', 'startup') AND coalesce(r.application_name, '') NOT LIKE 'mailstreams %'
     AND NOT EXISTS (SELECT FROM pg_replication_slots AS s WHERE s.slot_type = 'logical' AND s.active_pid = r.pid))::int AS standbys,
  current_user::text AS role,
  (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user) AS replication_attribute,
  pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size'), '-1')) AS keep_bytes,
  -- Hidden from ordinary roles.
  (SELECT setting FROM pg_settings WHERE name = 'data_directory') AS data_directory,
  current_database()::text AS database,
  pg_postmaster_start_time() AS started,
  clock_timestamp() AS clock,
  current_setting('idle_replication_slot_timeout', true) AS idle_timeout,
  pg_backend_pid() AS pid
