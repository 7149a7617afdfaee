-- Moves what is due from email_due into the feed as pointers; what expired meanwhile becomes 'expired', what a pause holds sleeps on. Rows in other hands are left, and rows of which SES is known to have taken a call: those are returned. $1 at most int, $2 event types that prove acceptance text[].
-- Every look at the outbox goes by single ids: the tables may be large, and the planner does not know $1.
WITH paused AS MATERIALIZED (
  SELECT p.scope, lower(p.value) AS value, coalesce(p.until, 'infinity') AS until
  FROM pause AS p WHERE p.until IS NULL OR p.until > now()
),
picked AS MATERIALIZED (
  SELECT d.id, d.due FROM email_due AS d WHERE d.due <= now() ORDER BY d.due LIMIT $1 FOR UPDATE SKIP LOCKED
),
-- The outbox row is locked too, so that its state is the newest: who puts a row back into email_due holds that lock.
due AS MATERIALIZED (
  SELECT p.id, p.due, o.state, o.is_over,
    o.state = 'pending' AND (
      (SELECT true FROM email_event AS e WHERE e.outbox_id = p.id AND e.type = ANY ($2::text[]) LIMIT 1)
      OR (SELECT true FROM email_attempt AS a WHERE a.outbox_id = p.id AND a.outcome = 'accepted' LIMIT 1)) IS TRUE AS is_taken,
    CASE WHEN o.state = 'pending' AND NOT o.is_over AND EXISTS (SELECT FROM paused) THEN (
      SELECT max(h.until) FROM paused AS h
      WHERE h.scope = 'account' OR (h.scope = 'tenant' AND h.value = lower(o.tenant)) OR (h.scope = 'lane' AND h.value = o.lane)
        OR (h.scope = 'sender' AND h.value IN (lower(o.sender), lower(split_part(o.sender, '@', 2))))
        OR (h.scope = 'template' AND h.value IN (lower(o.template), lower(o.tenant || '/' || o.template)))) END AS held_until
  FROM picked AS p
  CROSS JOIN LATERAL (
    SELECT o.state, o.tenant, o.lane, o.sender, o.template, coalesce(o.expires_at <= now(), false) AS is_over
    FROM email_outbox AS o WHERE o.id = p.id FOR NO KEY UPDATE SKIP LOCKED) AS o
),
gone AS (
  DELETE FROM email_due AS d
  WHERE d.id = ANY (ARRAY(
    SELECT due.id FROM due WHERE NOT due.is_taken AND due.held_until IS NULL
    UNION ALL
    SELECT p.id FROM picked AS p WHERE (SELECT true FROM email_outbox AS o WHERE o.id = p.id) IS NULL))
),
-- No longer than until the first of these pauses ends, and than a claim lets a row sleep that meets one.
held AS (
  UPDATE email_due AS d SET why = 'paused', due = (SELECT least(min(due.held_until), now() + interval '30 seconds') FROM due)
  WHERE d.id = ANY (ARRAY(SELECT due.id FROM due WHERE due.held_until IS NOT NULL AND NOT due.is_taken))
),
expired AS (
  UPDATE email_outbox AS o
  SET state = 'expired', reason = 'expires_at passed before it could be sent', changed = clock_timestamp()
  WHERE o.id = ANY (ARRAY(SELECT due.id FROM due WHERE due.state = 'pending' AND due.is_over AND NOT due.is_taken))
  RETURNING o.recipient_key, o.traceparent, life_cycle_event(o, 'expired', o.reason) AS event
),
announced AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'outbox.' || o.lane, o.recipient_key, 'pointer', o.pointer, 'traceparent=' || o.traceparent
  FROM due
  CROSS JOIN LATERAL (
    SELECT o.lane, o.recipient_key, outbox_pointer(o, due.due) AS pointer, o.traceparent
    FROM email_outbox AS o WHERE o.id = due.id OFFSET 0) AS o
  WHERE due.state = 'pending' AND NOT due.is_over AND NOT due.is_taken AND due.held_until IS NULL
  ORDER BY due.due
  RETURNING type
),
told AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'delivery-events', e.recipient_key, 'expired', e.event, 'traceparent=' || e.traceparent FROM expired AS e
)
SELECT (SELECT count(*) FROM picked) AS taken, (SELECT count(*) FROM announced) AS pointers, (SELECT count(*) FROM expired) AS expired,
  ARRAY(SELECT due.id FROM due WHERE due.is_taken) AS evident;
