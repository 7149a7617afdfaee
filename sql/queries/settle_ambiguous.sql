-- Settles rows by the evidence that there is: taken by SES -> submitted, refused -> pending. Rows under a call or a lock, or changed meanwhile, are left for later. $1 outbox id uuid[], $2 event types that prove acceptance text[].
WITH proof AS (
  SELECT e.outbox_id, e.attempt_id, e.provider_message_id
  FROM email_event AS e
  WHERE e.outbox_id = ANY ($1::uuid[]) AND e.type = ANY ($2::text[])
),
open AS (
  SELECT u.attempt_id, u.outbox_id,
    coalesce(a.outcome = 'accepted', false)
      OR EXISTS (SELECT FROM proof AS p WHERE p.outbox_id = u.outbox_id AND coalesce(p.attempt_id, u.attempt_id) = u.attempt_id) AS accepted,
    coalesce(a.outcome NOT IN ('accepted', 'unknown'), false) AS refused
  FROM email_unsettled AS u
  LEFT JOIN email_attempt AS a ON a.id = u.attempt_id
  WHERE u.outbox_id = ANY ($1::uuid[])
),
taken AS (
  SELECT p.outbox_id FROM proof AS p
  UNION
  SELECT a.outbox_id FROM email_attempt AS a WHERE a.outbox_id = ANY ($1::uuid[]) AND a.outcome = 'accepted'
),
-- Only what there is something to settle of is locked: most messages are submitted long before their events come.
seen AS MATERIALIZED (
  SELECT o.id, o.state, o.changed
  FROM email_outbox AS o
  WHERE o.id = ANY ($1::uuid[]) AND o.state <> 'sending'
    AND (o.id IN (SELECT outbox_id FROM open WHERE accepted OR refused)
      OR (o.id IN (SELECT outbox_id FROM taken)
        AND (o.state IN ('pending', 'ambiguous') OR (o.state = 'failed' AND o.id IN (SELECT outbox_id FROM open)))))
  ORDER BY o.id
),
-- A lock gives the newest version of a row, but the evidence is as old as the snapshot: a row that changed in between may
-- have had another call since, of which nothing is known here.
candidate AS MATERIALIZED (
  SELECT s.id, o.tenant, o.lane, s.state,
    s.state = 'failed' AND (
      SELECT l.class FROM dead_letter AS l WHERE l.outbox_id = s.id ORDER BY l.created DESC, l.id DESC LIMIT 1) = 'held' AS is_held
  FROM seen AS s
  CROSS JOIN LATERAL (
    SELECT o.tenant, o.lane FROM email_outbox AS o
    WHERE o.id = s.id AND o.state = s.state AND o.changed = s.changed FOR NO KEY UPDATE SKIP LOCKED) AS o
),
proven AS (
  UPDATE email_attempt AS a SET outcome = 'accepted', provider_message_id = coalesce(a.provider_message_id, p.provider_message_id)
  FROM candidate AS c, open AS u, LATERAL (
    SELECT p.provider_message_id FROM proof AS p
    WHERE p.outbox_id = u.outbox_id AND coalesce(p.attempt_id, u.attempt_id) = u.attempt_id
    ORDER BY p.attempt_id, p.provider_message_id LIMIT 1) AS p
  WHERE u.outbox_id = c.id AND a.id = u.attempt_id AND a.outcome <> 'accepted'
  RETURNING a.id, a.outbox_id
),
cleared AS (
  DELETE FROM email_unsettled AS u USING candidate AS c, open AS s
  WHERE u.outbox_id = c.id AND s.attempt_id = u.attempt_id AND (s.accepted OR s.refused)
  RETURNING u.attempt_id, s.accepted, u.outbox_id
),
submitted AS (
  UPDATE email_outbox AS o SET state = 'submitted', reason = NULL, changed = clock_timestamp()
  FROM candidate AS c
  WHERE o.id = c.id AND o.id IN (SELECT outbox_id FROM taken) AND c.state IN ('pending', 'ambiguous', 'failed')
  RETURNING o.id, c.state AS was
),
again AS (
  UPDATE email_outbox AS o SET state = 'pending', reason = 'SES had refused the call', changed = clock_timestamp()
  FROM candidate AS c
  WHERE o.id = c.id AND (c.state = 'ambiguous' OR c.is_held) AND o.id NOT IN (SELECT outbox_id FROM taken)
    AND NOT EXISTS (SELECT FROM open AS u WHERE u.outbox_id = o.id AND NOT u.refused)
  RETURNING o.id, o.tenant, o.lane
),
due AS (
  INSERT INTO email_due AS d (id, due, tenant, lane, why)
  SELECT id, clock_timestamp(), tenant, lane, 'retry' FROM again
  ON CONFLICT (id) DO UPDATE SET due = least(d.due, excluded.due)
),
undue AS (
  DELETE FROM email_due AS d USING submitted AS s WHERE d.id = s.id
),
decided AS (
  DELETE FROM dead_letter AS l WHERE l.class = 'held' AND l.outbox_id = ANY (ARRAY(SELECT id FROM submitted UNION ALL SELECT id FROM again))
)
SELECT
  (SELECT count(*) FROM submitted WHERE was = 'ambiguous') AS from_ambiguous,
  (SELECT count(*) FROM submitted WHERE was = 'failed') AS from_held,
  (SELECT count(*) FROM submitted WHERE was = 'pending') AS from_pending,
  (SELECT count(*) FROM again) AS refused,
  (SELECT count(*) FROM proven AS p WHERE EXISTS (
    SELECT FROM email_attempt AS other WHERE other.outbox_id = p.outbox_id AND other.id <> p.id AND other.outcome = 'accepted')) AS duplicates;
