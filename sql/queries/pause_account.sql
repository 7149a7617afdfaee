-- Pauses the account until then, or longer where it is paused by the same already; true if nothing was paused by it before. $1 value text, $2 reason text, $3 who text, $4 for interval.
INSERT INTO pause AS p (scope, value, reason, who, until) VALUES ('account', $1, $2, $3, clock_timestamp() + $4::interval)
ON CONFLICT (scope, value) DO UPDATE SET reason = excluded.reason, until = excluded.until
WHERE p.who = excluded.who
RETURNING xmax = 0 AS is_new;
