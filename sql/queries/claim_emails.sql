-- Claims the rows that may be sent now and says of every id why not, if not. One statement, so that no decision is older
-- than the claim: rows are locked first and a locked one is skipped, since a claim that waited would not see a
-- suppression that committed meanwhile.
-- $1 ids uuid[] (each once), $2 attempt ids uuid[] (version 7), $3 writing transactions xid8[], $4 lease in seconds float8
WITH asked AS MATERIALIZED (
  SELECT a.id, a.attempt_id AS token, a.xid FROM unnest($1::uuid[], $2::uuid[], $3::xid8[]) AS a (id, attempt_id, xid)
),
paused AS MATERIALIZED (
  SELECT p.scope, lower(p.value) AS value, coalesce(p.until, 'infinity') AS until
  FROM pause AS p WHERE p.until IS NULL OR p.until > statement_timestamp()
),
-- The rows as the snapshot of this statement shows them. What else it reads (suppressions, wake-ups, evidence) is as old,
-- so a row that changed since is left to the next claim.
seen AS MATERIALIZED (
  SELECT o.id, o.changed FROM asked AS a JOIN email_outbox AS o ON o.id = a.id
),
-- The newest version of each row, also where another transaction changed it after the snapshot of this statement.
locked AS MATERIALIZED (
  SELECT a.token, o.*
  FROM (SELECT id, token FROM asked ORDER BY id) AS a
  CROSS JOIN LATERAL (SELECT o.* FROM email_outbox AS o WHERE o.id = a.id FOR NO KEY UPDATE SKIP LOCKED) AS o
),
weighed AS MATERIALIZED (
  SELECT l.*,
    NOT EXISTS (SELECT FROM seen AS n WHERE n.id = l.id AND n.changed = l.changed) AS is_newer,
    -- SES is known to have taken an earlier call: take_due settles the row.
    l.state = 'pending' AND (
      EXISTS (
        SELECT FROM email_event AS e
        WHERE e.outbox_id = l.id AND e.type IN ('accepted', 'delivered', 'delayed', 'bounced', 'complained', 'rejected', 'rendering-failed', 'opened', 'clicked'))
      OR EXISTS (SELECT FROM email_attempt AS a WHERE a.outbox_id = l.id AND a.outcome = 'accepted')) AS is_taken,
    CASE WHEN l.state = 'pending' THEN (
      SELECT s.reason FROM suppression AS s
      WHERE s.recipient_key = l.recipient_key AND s.tenant IN ('*', l.tenant) AND s.lane IN ('*', l.lane)
        AND (s.expires IS NULL OR s.expires > statement_timestamp())
      ORDER BY s.created, s.reason LIMIT 1) END AS suppressed_by,
    CASE WHEN l.state = 'pending' THEN (
      SELECT d.due FROM email_due AS d
      WHERE d.id = l.id AND d.why = 'retry' AND d.due > statement_timestamp()) END AS retry_due,
    CASE WHEN l.state = 'pending' THEN (
      SELECT max(p.until) FROM paused AS p
      WHERE p.scope = 'account' OR (p.scope = 'tenant' AND p.value = lower(l.tenant)) OR (p.scope = 'lane' AND p.value = l.lane)
        OR (p.scope = 'sender' AND p.value IN (lower(l.sender), lower(split_part(l.sender, '@', 2))))) END AS paused_until,
    CASE WHEN l.state = 'pending' AND (l.cc_keys IS NOT NULL OR l.bcc_keys IS NOT NULL) THEN ARRAY(
      SELECT DISTINCT k FROM unnest(l.cc_keys || l.bcc_keys) AS k
      -- Not EXISTS: the planner would join, and read all suppressions for it.
      WHERE (
        SELECT true FROM suppression AS s
        WHERE s.recipient_key = k AND s.tenant IN ('*', l.tenant) AND s.lane IN ('*', l.lane)
          AND (s.expires IS NULL OR s.expires > statement_timestamp())
        LIMIT 1)) END AS left_out
  FROM locked AS l
),
judged AS MATERIALIZED (
  SELECT w.*,
    CASE
      WHEN w.state <> 'pending' THEN 'settled'
      WHEN w.is_newer OR w.is_taken THEN 'busy'
      WHEN w.suppressed_by IS NOT NULL THEN 'suppressed'
      WHEN w.expires_at <= statement_timestamp() THEN 'expired'
      WHEN w.send_after > statement_timestamp() OR w.retry_due IS NOT NULL THEN 'early'
      WHEN w.paused_until IS NOT NULL THEN 'paused'
      ELSE 'claimed'
    END AS verdict
  FROM weighed AS w
),
-- What could not be locked: as the snapshot of this statement shows it.
missed AS MATERIALIZED (
  SELECT a.id, o.tenant, o.lane,
    CASE
      WHEN o.state = 'pending' THEN 'busy'
      WHEN o.state IS NOT NULL THEN 'settled'
      WHEN pg_visible_in_snapshot(a.xid, pg_current_snapshot()) THEN 'absent'
      ELSE 'invisible'
    END AS verdict
  FROM asked AS a
  LEFT JOIN email_outbox AS o ON o.id = a.id
  WHERE NOT EXISTS (SELECT FROM locked AS l WHERE l.id = a.id)
),
moved AS (
  UPDATE email_outbox AS o
  SET state = CASE j.verdict WHEN 'claimed' THEN 'sending' ELSE j.verdict END,
    attempt_id = CASE j.verdict WHEN 'claimed' THEN j.token END,
    attempts = o.attempts + CASE j.verdict WHEN 'claimed' THEN 1 ELSE 0 END,
    reason = CASE j.verdict
      WHEN 'suppressed' THEN j.suppressed_by
      WHEN 'expired' THEN 'expires_at passed before it could be sent'
      ELSE o.reason END,
    changed = statement_timestamp()
  FROM judged AS j
  WHERE o.id = j.id AND j.verdict IN ('claimed', 'suppressed', 'expired')
  RETURNING o.id, j.verdict, o.attempt_id, o.attempts, o.recipient_key, o.traceparent,
    CASE WHEN j.verdict <> 'claimed' THEN life_cycle_event(o, j.verdict, o.reason) END AS event
),
leased AS (
  INSERT INTO email_lease (id, attempt_id, started, expires)
  SELECT m.id, m.attempt_id, statement_timestamp(), statement_timestamp() + make_interval(secs => $4::float8)
  FROM moved AS m WHERE m.verdict = 'claimed'
  ON CONFLICT (id) DO UPDATE SET attempt_id = excluded.attempt_id, started = excluded.started, expires = excluded.expires
),
announced AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'delivery-events', m.recipient_key, m.verdict, m.event, 'traceparent=' || m.traceparent
  FROM moved AS m WHERE m.event IS NOT NULL
),
-- The wake-up of a row that moved on is not needed; one that the scheduler is taking this moment does no harm.
unneeded AS (
  DELETE FROM email_due AS e
  USING (
    SELECT d.id FROM moved AS m
    CROSS JOIN LATERAL (SELECT d.id FROM email_due AS d WHERE d.id = m.id FOR UPDATE SKIP LOCKED) AS d
  ) AS found
  WHERE e.id = found.id
),
waiting AS MATERIALIZED (
  SELECT j.id, j.tenant, j.lane, 'early' AS why, greatest(j.send_after, j.retry_due) AS due
  FROM judged AS j WHERE j.verdict = 'early'
  UNION ALL
  SELECT j.id, j.tenant, j.lane, 'paused', least(j.paused_until, statement_timestamp() + interval '30 seconds')
  FROM judged AS j WHERE j.verdict = 'paused'
  UNION ALL
  SELECT j.id, j.tenant, j.lane, 'busy', statement_timestamp() + interval '1 second'
  FROM judged AS j WHERE j.verdict = 'busy'
  UNION ALL
  SELECT n.id, n.tenant, n.lane, 'busy', statement_timestamp() + interval '1 second'
  FROM missed AS n WHERE n.verdict = 'busy'
),
-- Nothing that stays pending sleeps. A row that is there already and due no later is enough, and not touched, since
-- whoever deletes it leaves another wake-up in the same transaction and may hold its lock now.
noted AS (
  INSERT INTO email_due AS d (id, due, tenant, lane, why)
  SELECT w.id, w.due, w.tenant, w.lane, w.why FROM waiting AS w
  WHERE NOT EXISTS (SELECT FROM email_due AS e WHERE e.id = w.id AND e.due <= w.due)
  ORDER BY w.id
  ON CONFLICT (id) DO UPDATE SET due = least(d.due, excluded.due)
)
SELECT j.id,
  CASE WHEN j.verdict = 'claimed' AND m.id IS NULL THEN 'busy' ELSE j.verdict END AS verdict,
  m.attempt_id, m.attempts, c.tenant, c.lane, c.recipient, c.recipient_key, c.cc, c.cc_keys, c.bcc, c.bcc_keys, c.left_out,
  c.sender, c.reply_to, c.subject, c.text, c.html, c.template, c.template_version, c.variables, c.headers, c.tags, c.traceparent
FROM judged AS j
LEFT JOIN moved AS m ON m.id = j.id AND m.verdict = 'claimed'
LEFT JOIN LATERAL (SELECT j.*) AS c ON m.id IS NOT NULL
UNION ALL
SELECT n.id, n.verdict, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM missed AS n
