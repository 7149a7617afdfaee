-- The position that the relay stored before it confirmed it last. $1 slot: text.
SELECT (lsn - '0/0')::bigint AS lsn, system_id, timeline FROM relay_checkpoint WHERE slot = $1
