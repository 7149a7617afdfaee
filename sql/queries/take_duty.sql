-- True for the one replica that has the duty this time. $1 name text, $2 next after interval.
-- A time further ahead than it is ever set means that the server's clock was set back.
INSERT INTO scheduler_duty AS d (name, next_at) VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at
WHERE d.next_at <= clock_timestamp() OR d.next_at > clock_timestamp() + $2::interval + interval '1 second'
RETURNING true;
