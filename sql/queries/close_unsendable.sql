-- Writes suppressed or expired for those pending rows of which the database confirms it, and returns them; all others stay
-- as they are. Takes no permit and no lease. A row that is locked, or newer than the snapshot, is left to the claim.
-- $1 ids uuid[]
WITH locked AS MATERIALIZED (
  SELECT o.*
  FROM (SELECT DISTINCT id FROM unnest($1::uuid[]) AS a (id) ORDER BY id) AS a
  CROSS JOIN LATERAL (
    SELECT o.id, o.ctid AS place, o.state, o.tenant, o.lane, o.recipient_key, o.expires_at
    FROM email_outbox AS o WHERE o.id = a.id FOR NO KEY UPDATE SKIP LOCKED) AS o
),
weighed AS MATERIALIZED (
  SELECT l.*, (
    SELECT s.reason FROM suppression AS s
    WHERE s.recipient_key = l.recipient_key AND s.tenant IN ('*', l.tenant) AND s.lane IN ('*', l.lane)
      AND (s.expires IS NULL OR s.expires > statement_timestamp())
    ORDER BY s.created, s.reason LIMIT 1) AS suppressed_by
  FROM locked AS l WHERE l.state = 'pending'
),
moved AS (
  UPDATE email_outbox AS o
  SET state = CASE WHEN w.suppressed_by IS NOT NULL THEN 'suppressed' ELSE 'expired' END,
    reason = coalesce(w.suppressed_by, 'expires_at passed before it could be sent'),
    changed = statement_timestamp()
  FROM weighed AS w
  WHERE o.ctid = w.place AND (w.suppressed_by IS NOT NULL OR w.expires_at <= statement_timestamp())
  RETURNING o.id, o.state, o.recipient_key, o.traceparent, life_cycle_event(o, o.state, o.reason) AS event
),
announced AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'delivery-events', m.recipient_key, m.state, m.event, 'traceparent=' || m.traceparent FROM moved AS m
),
unneeded AS (
  DELETE FROM email_due AS d
  WHERE d.ctid = ANY (ARRAY(
    SELECT f.place FROM moved AS m
    CROSS JOIN LATERAL (SELECT d.ctid AS place FROM email_due AS d WHERE d.id = m.id FOR UPDATE SKIP LOCKED) AS f))
)
SELECT m.id, m.state AS verdict FROM moved AS m
