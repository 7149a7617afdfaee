-- Drops the slot of a relay in wal mode that nobody reads, so that it keeps no WAL. $1 slot: text.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name = $1 AND database = current_database() AND NOT active
