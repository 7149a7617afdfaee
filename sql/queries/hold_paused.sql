-- Puts those pending rows to sleep that a pause holds, each with a wake-up like one of a claim that met it, and returns them; all others stay as they are. Takes no permit and no lease; a locked row is left to the claim. $1 ids uuid[]
WITH paused AS MATERIALIZED (
  SELECT p.scope, lower(p.value) AS value, coalesce(p.until, 'infinity') AS until
  FROM pause AS p WHERE p.until IS NULL OR p.until > statement_timestamp()
),
locked AS MATERIALIZED (
  SELECT o.*
  FROM (SELECT DISTINCT id FROM unnest($1::uuid[]) AS a (id) WHERE EXISTS (SELECT FROM paused) ORDER BY id) AS a
  CROSS JOIN LATERAL (
    SELECT o.id, o.state, o.tenant, o.lane, o.sender, o.template
    FROM email_outbox AS o WHERE o.id = a.id FOR NO KEY UPDATE SKIP LOCKED) AS o
),
held AS MATERIALIZED (
  SELECT l.id, l.tenant, l.lane, least(p.until, statement_timestamp() + interval '30 seconds') AS due
  FROM locked AS l
  CROSS JOIN LATERAL (
    SELECT max(p.until) AS until FROM paused AS p
    WHERE p.scope = 'account' OR (p.scope = 'tenant' AND p.value = lower(l.tenant)) OR (p.scope = 'lane' AND p.value = l.lane)
      OR (p.scope = 'sender' AND p.value IN (lower(l.sender), lower(split_part(l.sender, '@', 2))))
      OR (p.scope = 'template' AND p.value IN (lower(l.template), lower(l.tenant || '/' || l.template)))) AS p
  WHERE l.state = 'pending' AND p.until IS NOT NULL
),
wake_up AS MATERIALIZED (
  SELECT d.id FROM email_due AS d WHERE d.id = ANY (ARRAY(SELECT h.id FROM held AS h))
),
-- A row that has a wake-up, such as that of a retry, keeps it.
noted AS (
  INSERT INTO email_due (id, due, tenant, lane, why)
  SELECT h.id, h.due, h.tenant, h.lane, 'paused' FROM held AS h
  WHERE NOT EXISTS (SELECT FROM wake_up AS w WHERE w.id = h.id)
  ORDER BY h.id
  ON CONFLICT (id) DO NOTHING
)
SELECT h.id FROM held AS h
