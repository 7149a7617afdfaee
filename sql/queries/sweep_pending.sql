-- Looks at the next rows of this age by id, each once a duty, and puts pointers of those into the feed that are pending and wait in no email_due. $1 duty text, $2 age interval, $3 at most int.
WITH duty AS (
  SELECT coalesce(position, '00000000-0000-0000-0000-000000000000') AS position
  FROM scheduler_duty WHERE name = $1 FOR UPDATE SKIP LOCKED
),
-- The smallest UUID of version 7 of that moment: its first 48 bits are milliseconds.
bound AS (
  SELECT (lpad(to_hex((extract(epoch FROM now() - $2::interval) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid AS id
),
seen AS MATERIALIZED (
  SELECT o.id, o.state
  FROM email_outbox AS o
  WHERE o.id > (SELECT position FROM duty) AND o.id < (SELECT id FROM bound)
  ORDER BY o.id
  LIMIT $3
),
moved AS (
  UPDATE scheduler_duty SET position = (SELECT id FROM seen ORDER BY id DESC LIMIT 1)
  WHERE name = $1 AND EXISTS (SELECT FROM seen)
),
announced AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'outbox.' || o.lane, o.recipient_key, 'pointer', outbox_pointer(o, coalesce(o.send_after, o.created)), 'traceparent=' || o.traceparent
  FROM seen AS s
  JOIN email_outbox AS o ON o.id = s.id
  WHERE s.state = 'pending' AND NOT EXISTS (SELECT FROM email_due AS d WHERE d.id = s.id)
  ORDER BY o.id
  RETURNING type
)
SELECT (SELECT count(*) FROM seen) AS seen, (SELECT count(*) FROM announced) AS pointers;
