-- One transaction at a time makes or changes the shards.
SELECT pg_advisory_xact_lock(7461213880021572)
