-- One message of a tenant with its events, oldest first; recipients stand in them as the tenant wrote them. $1 tenant text, $2 outbox id uuid.
WITH email AS MATERIALIZED (
  SELECT o.* FROM email_outbox AS o WHERE o.id = $2 AND o.tenant = $1
),
named AS MATERIALIZED (
  SELECT o.recipient AS address, o.recipient_key AS key FROM email AS o
  UNION ALL SELECT c.address, c.key FROM email AS o, unnest(o.cc, o.cc_keys) AS c (address, key)
  UNION ALL SELECT b.address, b.key FROM email AS o, unnest(o.bcc, o.bcc_keys) AS b (address, key)
),
story AS (
  SELECT o.created AS at, 1 AS step, 'committed' AS event, NULL::text AS recipient, NULL::text AS reason FROM email AS o
  UNION ALL
  SELECT a.finished, 2, 'attempt-' || a.outcome, NULL, a.reason FROM email AS o JOIN email_attempt AS a ON a.outbox_id = o.id
  UNION ALL
  SELECT e.at, 3, e.type, (SELECT n.address FROM named AS n WHERE n.key = e.recipient_key LIMIT 1),
    coalesce(e.payload #>> '{bounce,reason}', e.payload #>> '{complaint,type}')
  FROM email AS o JOIN email_event AS e ON e.outbox_id = o.id
  UNION ALL
  SELECT o.changed, 4, o.state, NULL, o.reason FROM email AS o WHERE o.state NOT IN ('pending', 'sending', 'submitted')
)
SELECT o.id, o.lane, o.state, o.reason, o.recipient, o.cc, o.bcc, o.sender, o.sender_name, o.reply_to, o.subject, o.template, o.template_version,
  o.tags, o.dedup_key, o.send_after, o.expires_at, o.attempts, o.created, o.changed, (
    SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('at', utc_text(s.at), 'event', s.event, 'recipient', s.recipient, 'reason', s.reason))
      ORDER BY s.at, s.step) FROM story AS s) AS events
FROM email AS o;
