-- Removes watches of processes that are long gone; returns how many. $1 older than interval.
WITH gone AS (DELETE FROM intake_watch WHERE reported < now() - $1::interval RETURNING process) SELECT count(*) FROM gone;
