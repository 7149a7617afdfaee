-- Gives rows that stayed ambiguous for too long, whatever their policy, to a person: 'failed' with a dead letter; later evidence still settles them. Returns how many. $1 too long interval, $2 at most int.
-- Every look at the outbox goes by single ids: it may be large, and the planner does not know $1 and $2.
WITH seen AS MATERIALIZED (
  SELECT o.id, o.changed, u.attempt_id
  FROM email_unsettled AS u
  CROSS JOIN LATERAL (
    SELECT o.id, o.changed FROM email_outbox AS o
    WHERE o.id = u.outbox_id AND o.state = 'ambiguous' OFFSET 0) AS o
  WHERE u.held IS NULL AND u.decided IS NULL AND u.since <= now() - $1::interval
  ORDER BY u.since
  LIMIT $2
),
-- A row that changed since the snapshot may be ambiguous by a younger call: it is left for later.
overdue AS MATERIALIZED (
  SELECT s.id, s.attempt_id
  FROM seen AS s
  CROSS JOIN LATERAL (
    SELECT FROM email_outbox AS o
    WHERE o.id = s.id AND o.state = 'ambiguous' AND o.changed = s.changed FOR NO KEY UPDATE SKIP LOCKED) AS o
),
held AS (
  UPDATE email_outbox AS o
  SET state = 'failed', changed = clock_timestamp(),
    reason = 'held: whether SES took the message stayed unknown; a person has to decide whether it is sent again'
  FROM overdue AS h
  WHERE o.id = h.id
  RETURNING o.id, o.tenant, o.lane, o.recipient_key, o.traceparent, o.reason, h.attempt_id,
    life_cycle_event(o, 'failed', o.reason) AS event, outbox_pointer(o, clock_timestamp()) AS pointer
),
noted AS (
  UPDATE email_unsettled AS u SET held = clock_timestamp() FROM held AS h WHERE u.outbox_id = h.id AND u.decided IS NULL
),
dead AS (
  INSERT INTO dead_letter (outbox_id, tenant, lane, class, reason, attempt_id)
  SELECT id, tenant, lane, 'held', reason, attempt_id FROM held
),
announced AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'delivery-events', h.recipient_key, 'failed', h.event, 'traceparent=' || h.traceparent FROM held AS h
  UNION ALL
  SELECT 'dead-letters', h.recipient_key, 'dead-letter',
    h.pointer || jsonb_build_object('class', 'held', 'reason', h.reason, 'attempt_id', h.attempt_id), 'traceparent=' || h.traceparent
  FROM held AS h
)
SELECT count(*) FROM held;
