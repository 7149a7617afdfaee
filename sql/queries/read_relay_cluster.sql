-- Which cluster this is, and in which of its histories.
SELECT system_identifier::text AS system_id, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS timeline
FROM pg_control_system()
