-- Stops something for a while. A pause that lasts longer already, a person's above all, stays as it is. One that comes
-- soon after the last one of the same has ended goes on with it, and lasts as long as all of it so far, within bounds: so
-- that what stays refused is tried more and more rarely. since is the beginning of the whole.
-- $1 scope text, $2 value text, $3 reason text, $4 who text, $5 shortest in seconds float8, $6 longest in seconds float8
INSERT INTO pause AS p (scope, value, reason, who, since, until)
VALUES ($1, $2, $3, $4, statement_timestamp(), statement_timestamp() + make_interval(secs => $5::float8))
ON CONFLICT (scope, value) DO UPDATE
SET reason = excluded.reason, who = excluded.who,
  since = CASE WHEN p.who = excluded.who AND p.until >= excluded.since - greatest(p.until - p.since, excluded.until - excluded.since)
    THEN p.since ELSE excluded.since END,
  until = CASE WHEN p.who = excluded.who AND p.until >= excluded.since - greatest(p.until - p.since, excluded.until - excluded.since)
    THEN excluded.since + least(greatest(excluded.since - p.since, excluded.until - excluded.since), make_interval(secs => greatest($6::float8, $5::float8)))
    ELSE excluded.until END
WHERE p.until < excluded.until
