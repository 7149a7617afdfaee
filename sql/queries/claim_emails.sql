-- Claims the rows that may be sent now and says of every id why not, if not. One statement, so that no decision is older
-- than the claim: rows are locked first and a locked one is skipped, since a claim that waited would not see a
-- suppression that committed meanwhile.
-- Every table is read by the keys of the whole batch, however few rows the planner believes it to have: = ANY and ctid leave it no other way.
-- $1 ids uuid[] (each once), $2 attempt ids uuid[] (version 7), $3 writing transactions xid8[], $4 lease in seconds float8
-- The newest version of each row, also where another transaction changed it after the snapshot of this statement.
WITH locked AS MATERIALIZED (
  SELECT a.id, a.token, a.xid, o.place, o.state, o.tenant, o.lane, o.recipient_key, o.cc_keys, o.bcc_keys, o.sender, o.template, o.send_after, o.expires_at
  FROM unnest($1::uuid[], $2::uuid[], $3::xid8[]) AS a (id, token, xid)
  LEFT JOIN LATERAL (
    SELECT o.ctid AS place, o.state, o.tenant, o.lane, o.recipient_key, o.cc_keys, o.bcc_keys, o.sender, o.template, o.send_after, o.expires_at
    FROM email_outbox AS o WHERE o.id = a.id FOR NO KEY UPDATE SKIP LOCKED) AS o ON true
),
paused AS MATERIALIZED (
  SELECT p.scope, lower(p.value) AS value, coalesce(p.until, 'infinity') AS until
  FROM pause AS p WHERE p.until IS NULL OR p.until > statement_timestamp()
),
-- Of nearly all rows there is nothing in the next three.
barred AS MATERIALIZED (
  SELECT s.recipient_key, s.tenant, s.lane, s.reason, s.created
  FROM suppression AS s
  WHERE s.recipient_key = ANY (ARRAY(
      SELECT l.recipient_key FROM locked AS l WHERE l.state = 'pending'
      UNION ALL SELECT unnest(l.cc_keys) FROM locked AS l WHERE l.state = 'pending' AND l.cc_keys IS NOT NULL
      UNION ALL SELECT unnest(l.bcc_keys) FROM locked AS l WHERE l.state = 'pending' AND l.bcc_keys IS NOT NULL))
    AND (s.expires IS NULL OR s.expires > statement_timestamp())
),
wake_up AS MATERIALIZED (
  SELECT d.id, d.due, d.why FROM email_due AS d WHERE d.id = ANY ($1::uuid[])
),
-- SES is known to have taken an earlier call: take_due settles the row.
taken AS MATERIALIZED (
  SELECT e.outbox_id FROM email_event AS e
  WHERE e.outbox_id = ANY ($1::uuid[])
    AND e.type IN ('accepted', 'delivered', 'delayed', 'bounced', 'complained', 'rejected', 'rendering-failed', 'opened', 'clicked')
  UNION ALL
  SELECT a.outbox_id FROM email_attempt AS a WHERE a.outbox_id = ANY ($1::uuid[]) AND a.outcome = 'accepted'
),
judged AS MATERIALIZED (
  SELECT w.*,
    CASE
      WHEN w.state <> 'pending' THEN 'settled'
      WHEN w.is_taken THEN 'busy'
      WHEN w.suppressed_by IS NOT NULL THEN 'suppressed'
      WHEN w.expires_at <= statement_timestamp() THEN 'expired'
      WHEN w.send_after > statement_timestamp() OR w.retry_due IS NOT NULL THEN 'early'
      WHEN w.paused_until IS NOT NULL THEN 'paused'
      ELSE 'claimed'
    END AS verdict
  FROM (
    SELECT l.*,
      l.id = ANY (ARRAY(SELECT t.outbox_id FROM taken AS t)) AS is_taken,
      CASE WHEN l.recipient_key = ANY (ARRAY(SELECT b.recipient_key FROM barred AS b)) THEN (
        SELECT b.reason FROM barred AS b
        WHERE b.recipient_key = l.recipient_key AND b.tenant IN ('*', l.tenant) AND b.lane IN ('*', l.lane)
        ORDER BY b.created, b.reason LIMIT 1) END AS suppressed_by,
      CASE WHEN EXISTS (SELECT FROM wake_up) THEN (
        SELECT w.due FROM wake_up AS w WHERE w.id = l.id AND w.why = 'retry' AND w.due > statement_timestamp()) END AS retry_due,
      CASE WHEN EXISTS (SELECT FROM paused) THEN (
        SELECT max(p.until) FROM paused AS p
        WHERE p.scope = 'account' OR (p.scope = 'tenant' AND p.value = lower(l.tenant)) OR (p.scope = 'lane' AND p.value = l.lane)
          OR (p.scope = 'sender' AND p.value IN (lower(l.sender), lower(split_part(l.sender, '@', 2))))
          OR (p.scope = 'template' AND p.value IN (lower(l.template), lower(l.tenant || '/' || l.template)))) END AS paused_until,
      CASE WHEN l.cc_keys IS NOT NULL OR l.bcc_keys IS NOT NULL THEN ARRAY(
        SELECT DISTINCT b.recipient_key FROM barred AS b
        WHERE b.recipient_key = ANY (l.cc_keys || l.bcc_keys) AND b.tenant IN ('*', l.tenant) AND b.lane IN ('*', l.lane)) END AS left_out
    FROM locked AS l WHERE l.place IS NOT NULL
    OFFSET 0) AS w
),
-- By the place of the version that was locked: one that is newer than the snapshot is not found. What was read beside the
-- row (suppressions, wake-ups, evidence) is as old as the snapshot, so such a row is left to the next claim.
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
  WHERE o.ctid = j.place AND j.verdict IN ('claimed', 'suppressed', 'expired')
  RETURNING o.id, j.verdict, o.attempt_id, o.attempts, o.tenant, o.lane, o.recipient, o.recipient_key, o.cc, o.cc_keys, o.bcc, o.bcc_keys,
    j.left_out, o.sender, o.sender_name, o.reply_to, o.subject, o.text, o.html, o.template, o.template_version, o.variables, o.headers, o.attachments, o.tags, o.traceparent,
    CASE WHEN j.verdict <> 'claimed' THEN life_cycle_event(o, j.verdict, o.reason) END AS event
),
leased AS (
  INSERT INTO email_lease (id, attempt_id, started, expires)
  SELECT m.id, m.attempt_id, statement_timestamp(), statement_timestamp() + make_interval(secs => $4::float8)
  FROM moved AS m WHERE m.verdict = 'claimed'
),
announced AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'delivery-events', m.recipient_key, m.verdict, m.event, 'traceparent=' || m.traceparent
  FROM moved AS m WHERE m.event IS NOT NULL
),
-- The wake-up of a row that moved on is not needed; one that the scheduler is taking this moment does no harm.
unneeded AS (
  DELETE FROM email_due AS d
  WHERE d.ctid = ANY (ARRAY(
    SELECT f.place FROM wake_up AS w
    JOIN moved AS m ON m.id = w.id
    CROSS JOIN LATERAL (SELECT d.ctid AS place FROM email_due AS d WHERE d.id = w.id FOR UPDATE SKIP LOCKED) AS f))
),
-- What should have moved and did not was newer.
left_alone AS MATERIALIZED (
  SELECT j.id, j.tenant, j.lane, j.send_after, j.retry_due, j.paused_until,
    CASE WHEN j.verdict IN ('claimed', 'suppressed', 'expired') THEN 'busy' ELSE j.verdict END AS verdict
  FROM judged AS j
  WHERE NOT EXISTS (SELECT FROM moved AS m WHERE m.id = j.id)
),
-- What could not be locked: as the snapshot of this statement shows it.
missed AS MATERIALIZED (
  SELECT l.id, o.tenant, o.lane,
    CASE
      WHEN o.state = 'pending' THEN 'busy'
      WHEN o.state IS NOT NULL THEN 'settled'
      WHEN pg_visible_in_snapshot(l.xid, pg_current_snapshot()) THEN 'absent'
      ELSE 'invisible'
    END AS verdict
  FROM locked AS l
  LEFT JOIN LATERAL (SELECT o.state, o.tenant, o.lane FROM email_outbox AS o WHERE o.id = l.id OFFSET 0) AS o ON true
  WHERE l.place IS NULL
),
waiting AS MATERIALIZED (
  SELECT a.id, a.tenant, a.lane, a.verdict AS why,
    CASE a.verdict
      WHEN 'early' THEN greatest(a.send_after, a.retry_due)
      WHEN 'paused' THEN least(a.paused_until, statement_timestamp() + interval '30 seconds')
      ELSE statement_timestamp() + interval '1 second'
    END AS due
  FROM left_alone AS a WHERE a.verdict IN ('early', 'paused', 'busy')
  UNION ALL
  SELECT n.id, n.tenant, n.lane, 'busy', statement_timestamp() + interval '1 second' FROM missed AS n WHERE n.verdict = 'busy'
),
-- Nothing that stays pending sleeps. A row that is there already and due no later is enough, and not touched, since
-- whoever deletes it leaves another wake-up in the same transaction and may hold its lock now.
noted AS (
  INSERT INTO email_due AS d (id, due, tenant, lane, why)
  SELECT w.id, w.due, w.tenant, w.lane, w.why FROM waiting AS w
  WHERE NOT EXISTS (SELECT FROM wake_up AS e WHERE e.id = w.id AND e.due <= w.due)
  ORDER BY w.id
  ON CONFLICT (id) DO UPDATE SET due = least(d.due, excluded.due)
)
SELECT m.id, m.verdict, m.attempt_id, m.attempts, m.tenant, m.lane, m.recipient, m.recipient_key, m.cc, m.cc_keys, m.bcc, m.bcc_keys, m.left_out,
  m.sender, m.sender_name, m.reply_to, m.subject, m.text, m.html, m.template, m.template_version, m.variables, m.headers, m.attachments, m.tags, m.traceparent
FROM moved AS m
UNION ALL
SELECT n.id, n.verdict, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM (SELECT a.id, a.verdict FROM left_alone AS a UNION ALL SELECT m.id, m.verdict FROM missed AS m) AS n
