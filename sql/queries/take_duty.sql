-- True for the one replica that has the duty this time. $1 name text, $2 next after interval.
INSERT INTO scheduler_duty AS d (name, next_at) VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at WHERE d.next_at <= clock_timestamp()
RETURNING true;
