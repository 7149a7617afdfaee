-- Pauses something by hand, with its entry in the audit log; no row comes back where a person has paused it already. One that a stage made is taken over and ends no sooner. $1 scope text, $2 value text, $3 by whom text, $4 why text, $5 until timestamptz or null, $6 for interval or null, $7 makers that are stages text[], $8 replace a person's bool.
WITH made AS (
  INSERT INTO pause AS p (scope, value, reason, who, since, until)
  VALUES ($1, $2, $4, $3, statement_timestamp(), coalesce($5::timestamptz, statement_timestamp() + $6::interval))
  ON CONFLICT (scope, value) DO UPDATE
  SET reason = excluded.reason, who = excluded.who, since = excluded.since,
    until = CASE
      WHEN excluded.until < p.until AND p.who = ANY ($7::text[]) THEN p.until
      ELSE excluded.until END
  WHERE $8::bool OR p.who = ANY ($7::text[]) OR p.until <= statement_timestamp()
  RETURNING p.scope, p.value, p.since, p.until
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, detail)
  SELECT $3, 'mail.paused', $4, jsonb_build_object('scope', m.scope, 'value', m.value, 'until', utc_text(m.until),
    'before', (SELECT to_jsonb(p) FROM pause AS p WHERE p.scope = $1 AND p.value = $2 AND (p.until IS NULL OR p.until > statement_timestamp())))
  FROM made AS m
)
SELECT m.scope, m.value, m.since, m.until FROM made AS m
