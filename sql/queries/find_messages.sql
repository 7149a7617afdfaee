-- The messages that a text can mean, newest first, each with what the text is to it: every look-up goes by an index. Dedup keys are looked for in the first 1,000 tenants. $1 outbox or attempt id uuid or null, $2 provider's id or dedup key text or null, $3 recipient key text or null, $4 tenant text or null, $5 at most int.
WITH RECURSIVE tenants AS (
  (SELECT coalesce($4::text, (
     SELECT o.tenant FROM email_outbox AS o WHERE o.dedup_key IS NOT NULL ORDER BY o.tenant LIMIT 1)) AS tenant, 1 AS number
   WHERE $2::text IS NOT NULL)
  UNION ALL
  SELECT (SELECT o.tenant FROM email_outbox AS o WHERE o.dedup_key IS NOT NULL AND o.tenant > t.tenant ORDER BY o.tenant LIMIT 1), t.number + 1
  FROM tenants AS t
  WHERE t.tenant IS NOT NULL AND $4 IS NULL AND t.number < 1000
),
found AS (
  SELECT $1::uuid AS id, 'outbox id' AS is_its WHERE (SELECT true FROM email_outbox AS o WHERE o.id = $1)
  UNION ALL
  SELECT a.outbox_id, 'attempt id' FROM email_attempt AS a WHERE a.id = $1
  UNION ALL
  SELECT l.id, 'attempt id' FROM email_lease AS l WHERE l.attempt_id = $1
  UNION ALL
  SELECT u.outbox_id, 'attempt id' FROM email_unsettled AS u WHERE u.attempt_id = $1
  UNION ALL
  SELECT a.outbox_id, 'provider id' FROM email_attempt AS a WHERE a.provider_message_id = $2
  UNION ALL
  SELECT e.outbox_id, 'provider id' FROM email_event AS e WHERE e.provider_message_id = $2 AND e.outbox_id IS NOT NULL
  UNION ALL
  SELECT d.id, 'dedup key' FROM tenants AS t
  CROSS JOIN LATERAL (SELECT o.id FROM email_outbox AS o WHERE o.tenant = t.tenant AND o.dedup_key = $2 OFFSET 0) AS d
  UNION ALL
  (SELECT o.id, 'recipient' FROM email_outbox AS o WHERE o.recipient_key = $3 ORDER BY o.id DESC LIMIT $5)
  UNION ALL
  SELECT o.id, 'copy to' FROM email_outbox AS o
  WHERE $3 IS NOT NULL AND (o.cc_keys || o.bcc_keys) @> ARRAY[$3] AND (o.cc_keys IS NOT NULL OR o.bcc_keys IS NOT NULL)
),
newest AS MATERIALIZED (
  SELECT f.id, min(f.is_its) AS is_its FROM found AS f GROUP BY f.id ORDER BY f.id DESC LIMIT 4 * $5
)
SELECT n.id, n.is_its, o.tenant, o.lane, o.state, o.created, o.template, o.attempts, o.recipient_key
FROM newest AS n
LEFT JOIN LATERAL (
  SELECT o.tenant, o.lane, o.state, o.created, o.template, o.attempts, o.recipient_key FROM email_outbox AS o WHERE o.id = n.id OFFSET 0) AS o ON true
WHERE $4 IS NULL OR o.tenant = $4
ORDER BY n.id DESC
LIMIT $5
