-- Stops something for a while. A pause that lasts longer already, a person's above all, stays as it is.
-- $1 scope text, $2 value text, $3 reason text, $4 who text, $5 seconds float8
INSERT INTO pause AS p (scope, value, reason, who, until)
VALUES ($1, $2, $3, $4, statement_timestamp() + make_interval(secs => $5::float8))
ON CONFLICT (scope, value) DO UPDATE
SET reason = excluded.reason, who = excluded.who, until = excluded.until
WHERE p.until < excluded.until
