-- Moves what is due from email_due into the feed as pointers; what expired meanwhile becomes 'expired'. Rows in other hands are left, and rows of which SES is known to have taken a call: those are returned. $1 at most int, $2 event types that prove acceptance text[].
-- Every look at the outbox goes by single ids: the tables may be large, and the planner does not know $1.
WITH picked AS MATERIALIZED (
  SELECT d.id, d.due FROM email_due AS d WHERE d.due <= now() ORDER BY d.due LIMIT $1 FOR UPDATE SKIP LOCKED
),
-- The outbox row is locked too, so that its state is the newest: who puts a row back into email_due holds that lock.
due AS MATERIALIZED (
  SELECT p.id, p.due, o.state, o.is_over,
    o.state = 'pending' AND (
      (SELECT true FROM email_event AS e WHERE e.outbox_id = p.id AND e.type = ANY ($2::text[]) LIMIT 1)
      OR (SELECT true FROM email_attempt AS a WHERE a.outbox_id = p.id AND a.outcome = 'accepted' LIMIT 1)) IS TRUE AS is_taken
  FROM picked AS p
  CROSS JOIN LATERAL (
    SELECT o.state, coalesce(o.expires_at <= now(), false) AS is_over
    FROM email_outbox AS o WHERE o.id = p.id FOR NO KEY UPDATE SKIP LOCKED) AS o
),
gone AS (
  DELETE FROM email_due AS d
  WHERE d.id = ANY (ARRAY(
    SELECT due.id FROM due WHERE NOT due.is_taken
    UNION ALL
    SELECT p.id FROM picked AS p WHERE (SELECT true FROM email_outbox AS o WHERE o.id = p.id) IS NULL))
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
  WHERE due.state = 'pending' AND NOT due.is_over AND NOT due.is_taken
  ORDER BY due.due
  RETURNING type
),
told AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'delivery-events', e.recipient_key, 'expired', e.event, 'traceparent=' || e.traceparent FROM expired AS e
)
SELECT (SELECT count(*) FROM picked) AS taken, (SELECT count(*) FROM announced) AS pointers, (SELECT count(*) FROM expired) AS expired,
  ARRAY(SELECT due.id FROM due WHERE due.is_taken) AS evident;
