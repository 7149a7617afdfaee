-- Lifts pauses of one thing, with their entries in the audit log, and says of each whether it was lifted: those of stages stay unless told otherwise. The first rows that were held wake up at once, the others by themselves within half a minute. $1 scope text, $2 value text (of the account: any), $3 by whom text, $4 why text, $5 makers that are stages text[], $6 theirs too bool, $7 wake at most int.
WITH found AS MATERIALIZED (
  SELECT p.scope, p.value, p.who, p.reason, p.since, p.until, $6::bool OR p.who <> ALL ($5::text[]) AS lifted
  FROM pause AS p
  WHERE p.scope = $1 AND ($1 = 'account' OR lower(p.value) = lower($2)) AND (p.until IS NULL OR p.until > statement_timestamp())
  FOR UPDATE
),
gone AS (
  DELETE FROM pause AS p USING found AS f WHERE p.scope = f.scope AND p.value = f.value AND f.lifted
  RETURNING f.*
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, detail) SELECT $3, 'mail.resumed', $4, to_jsonb(g) - 'lifted' FROM gone AS g
),
woken AS (
  UPDATE email_due AS d SET due = statement_timestamp()
  WHERE d.id = ANY (ARRAY(
    SELECT h.id FROM email_due AS h
    WHERE h.why = 'paused' AND h.due BETWEEN statement_timestamp() AND statement_timestamp() + interval '30 seconds'
      AND ($1 <> 'tenant' OR lower(h.tenant) = lower($2)) AND ($1 <> 'lane' OR h.lane = $2)
      AND EXISTS (SELECT FROM found AS f WHERE f.lifted)
    ORDER BY h.due LIMIT $7 FOR UPDATE SKIP LOCKED))
)
SELECT f.scope, f.value, f.who, f.reason, f.since, f.until, f.lifted FROM found AS f ORDER BY f.scope, f.value
