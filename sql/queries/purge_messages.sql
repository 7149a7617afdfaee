-- Removes the next messages of this age by id that have ended and need nobody, with what was written about them but evidence of bounces, complaints and opt-outs. $1 after id uuid, $2 age interval, $3 no event came for interval, $4 at most int.
WITH bound AS (
  -- The smallest UUID of version 7 of that moment: its first 48 bits are milliseconds.
  SELECT (lpad(to_hex((extract(epoch FROM now() - $2::interval) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid AS id
),
seen AS MATERIALIZED (
  SELECT o.id, o.state NOT IN ('pending', 'sending', 'ambiguous')
    -- With a limit each is a look-up of its own; without one the whole table could be read into a hash.
    AND (SELECT true FROM dead_letter AS l WHERE l.outbox_id = o.id LIMIT 1) IS NULL
    AND (SELECT true FROM email_event AS e WHERE e.outbox_id = o.id AND e.received > now() - $3::interval LIMIT 1) IS NULL AS over
  FROM email_outbox AS o
  WHERE o.id > $1 AND o.id < (SELECT id FROM bound)
  ORDER BY o.id
  LIMIT $4
),
ended AS MATERIALIZED (
  SELECT o.id
  FROM email_outbox AS o
  WHERE o.id = ANY (ARRAY(SELECT s.id FROM seen AS s WHERE s.over))
    AND o.state NOT IN ('pending', 'sending', 'ambiguous')
  ORDER BY o.id
  FOR UPDATE SKIP LOCKED
),
gone AS (
  DELETE FROM email_outbox AS o WHERE o.id = ANY (ARRAY(SELECT id FROM ended)) RETURNING o.id
),
attempts AS (
  DELETE FROM email_attempt AS a WHERE a.outbox_id = ANY (ARRAY(SELECT id FROM ended)) RETURNING 1
),
outcomes AS (
  DELETE FROM recipient_outcome AS r WHERE r.outbox_id = ANY (ARRAY(SELECT id FROM ended)) RETURNING 1
),
events AS (
  DELETE FROM email_event AS e
  WHERE e.outbox_id = ANY (ARRAY(SELECT id FROM ended)) AND e.type NOT IN ('bounced', 'complained', 'unsubscribed')
  RETURNING 1
),
unsettled AS (
  DELETE FROM email_unsettled AS u WHERE u.outbox_id = ANY (ARRAY(SELECT id FROM ended)) RETURNING 1
),
duplicates AS (
  DELETE FROM email_duplicate AS d WHERE d.outbox_id = ANY (ARRAY(SELECT id FROM ended)) RETURNING 1
)
SELECT (SELECT count(*) FROM seen)::int AS seen, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last,
  (SELECT count(*) FROM gone)::int AS email_outbox, (SELECT count(*) FROM attempts)::int AS email_attempt,
  (SELECT count(*) FROM outcomes)::int AS recipient_outcome, (SELECT count(*) FROM events)::int AS email_event,
  (SELECT count(*) FROM unsettled)::int AS email_unsettled, (SELECT count(*) FROM duplicates)::int AS email_duplicate;
