-- Sets the rate that senders share. $1 scope text, $2 recipients a second float8.
INSERT INTO send_rate (scope, per_second) VALUES ($1, $2)
ON CONFLICT (scope) DO UPDATE SET per_second = excluded.per_second, read_at = clock_timestamp();
