-- Removes pauses that ended long ago; returns how many. $1 older than interval.
WITH gone AS (DELETE FROM pause WHERE until < now() - $1::interval RETURNING 1) SELECT count(*)::int FROM gone;
