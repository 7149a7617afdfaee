-- Removes events that belong to no message of ours, the oldest first, but evidence of bounces, complaints and opt-outs. $1 received after timestamptz, $2 older than interval, $3 at most int.
WITH seen AS MATERIALIZED (
  SELECT e.ctid AS place, e.received, e.type
  FROM email_event AS e
  WHERE e.outbox_id IS NULL AND e.received > $1 AND e.received < now() - $2::interval
  ORDER BY e.received
  LIMIT $3
  FOR UPDATE SKIP LOCKED
),
gone AS (
  DELETE FROM email_event AS e
  WHERE e.ctid = ANY (ARRAY(SELECT s.place FROM seen AS s WHERE s.type NOT IN ('bounced', 'complained', 'unsubscribed')))
  RETURNING 1
)
SELECT (SELECT count(*) FROM seen)::int AS seen, (SELECT max(received) FROM seen) AS last, (SELECT count(*) FROM gone)::int AS removed;
