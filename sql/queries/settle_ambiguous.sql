-- Settles rows by the evidence that there is: taken by SES -> submitted, refused -> pending; counts messages that turn out to be taken twice. Rows under a call or a lock, or changed meanwhile, are left for later. $1 outbox id uuid[], $2 event types that prove acceptance text[].
WITH proof AS (
  SELECT e.outbox_id, e.attempt_id, e.provider_message_id
  FROM email_event AS e
  WHERE e.outbox_id = ANY ($1::uuid[]) AND e.type = ANY ($2::text[])
),
known AS MATERIALIZED (
  SELECT a.id, a.outbox_id, a.outcome,
    a.outcome <> 'accepted' AND EXISTS (SELECT FROM proof AS p WHERE p.outbox_id = a.outbox_id AND p.attempt_id = a.id) AS is_proven
  FROM email_attempt AS a
  WHERE a.outbox_id = ANY ($1::uuid[])
),
open AS MATERIALIZED (
  SELECT u.attempt_id, u.outbox_id, u.decided IS NOT NULL AS is_decided,
    coalesce(a.outcome = 'accepted', false)
      OR EXISTS (SELECT FROM proof AS p WHERE p.outbox_id = u.outbox_id AND p.attempt_id = u.attempt_id)
      -- An event that does not say of which call it is, where it can be of this one only.
      OR (EXISTS (SELECT FROM proof AS p WHERE p.outbox_id = u.outbox_id AND p.attempt_id IS NULL)
        AND NOT EXISTS (SELECT FROM email_unsettled AS other WHERE other.outbox_id = u.outbox_id AND other.attempt_id <> u.attempt_id)
        AND NOT EXISTS (SELECT FROM known AS k WHERE k.outbox_id = u.outbox_id AND k.outcome = 'accepted')) AS accepted,
    coalesce(a.outcome NOT IN ('accepted', 'unknown'), false) AS refused
  FROM email_unsettled AS u
  LEFT JOIN email_attempt AS a ON a.id = u.attempt_id
  WHERE u.outbox_id = ANY ($1::uuid[])
),
taken AS (
  SELECT p.outbox_id FROM proof AS p
  UNION
  SELECT k.outbox_id FROM known AS k WHERE k.outcome = 'accepted'
),
-- Taken more often than is written down.
uncounted AS (
  SELECT k.outbox_id FROM known AS k WHERE k.outcome = 'accepted' GROUP BY k.outbox_id
  HAVING count(*) > 1 AND count(*) > 1 + (
    SELECT count(*) FROM email_duplicate AS d WHERE d.outbox_id = k.outbox_id AND d.proven IS NOT NULL)
),
-- Only what there is something to settle of is locked: most messages are submitted long before their events come.
seen AS MATERIALIZED (
  SELECT o.id, o.state, o.changed
  FROM email_outbox AS o
  WHERE o.id = ANY ($1::uuid[]) AND o.state <> 'sending'
    AND (o.id IN (SELECT outbox_id FROM open WHERE accepted OR refused)
      OR o.id IN (SELECT outbox_id FROM known WHERE is_proven)
      OR o.id IN (SELECT outbox_id FROM uncounted)
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
  UPDATE email_attempt AS a SET outcome = 'accepted', provider_message_id = coalesce(a.provider_message_id, (
    SELECT p.provider_message_id FROM proof AS p
    WHERE p.outbox_id = a.outbox_id AND coalesce(p.attempt_id, a.id) = a.id
    ORDER BY p.attempt_id, p.provider_message_id LIMIT 1))
  FROM candidate AS c
  WHERE a.outbox_id = c.id AND a.outcome <> 'accepted' AND a.id = ANY (ARRAY(
    SELECT k.id FROM known AS k WHERE k.is_proven UNION ALL SELECT u.attempt_id FROM open AS u WHERE u.accepted))
  RETURNING a.id, a.outbox_id
),
cleared AS (
  DELETE FROM email_unsettled AS u USING candidate AS c, open AS s
  WHERE u.outbox_id = c.id AND s.attempt_id = u.attempt_id AND (s.accepted OR s.refused)
  RETURNING u.attempt_id, s.accepted, u.outbox_id, c.state
),
submitted AS (
  UPDATE email_outbox AS o SET state = 'submitted', reason = NULL, changed = clock_timestamp()
  FROM candidate AS c
  WHERE o.id = c.id AND o.id IN (SELECT outbox_id FROM taken)
    AND (c.state IN ('pending', 'ambiguous') OR (c.state = 'failed' AND o.id IN (SELECT outbox_id FROM open)))
  RETURNING o.id, c.state AS was
),
again AS (
  UPDATE email_outbox AS o SET state = 'pending', reason = 'SES had refused the call', changed = clock_timestamp()
  FROM candidate AS c
  WHERE o.id = c.id AND (c.state = 'ambiguous' OR c.is_held) AND o.id NOT IN (SELECT outbox_id FROM taken)
    AND NOT EXISTS (SELECT FROM open AS u WHERE u.outbox_id = o.id AND NOT u.refused AND NOT u.is_decided)
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
  DELETE FROM dead_letter AS l
  WHERE l.outbox_id = ANY (ARRAY(SELECT id FROM submitted)) OR (l.class = 'held' AND l.outbox_id = ANY (ARRAY(SELECT id FROM again)))
),
accepted AS (
  SELECT k.id, k.outbox_id, c.tenant
  FROM candidate AS c
  JOIN known AS k ON k.outbox_id = c.id
  WHERE k.outcome = 'accepted' OR k.id IN (SELECT id FROM proven)
),
-- The call that counts as the only one is rather one after which the message was not given back.
ranked AS (
  SELECT a.id, a.outbox_id, a.tenant, row_number() OVER (PARTITION BY a.outbox_id ORDER BY d.attempt_id IS NOT NULL, a.id) AS place
  FROM accepted AS a
  LEFT JOIN email_duplicate AS d ON d.attempt_id = a.id
),
twice AS (
  INSERT INTO email_duplicate AS d (attempt_id, outbox_id, tenant, why, proven)
  SELECT r.id, r.outbox_id, r.tenant, 'unforeseen', clock_timestamp() FROM ranked AS r WHERE r.place > 1
  ON CONFLICT (attempt_id) DO UPDATE SET proven = excluded.proven WHERE d.proven IS NULL
  RETURNING d.attempt_id
),
averted AS (
  DELETE FROM email_duplicate AS d USING candidate AS c
  WHERE d.outbox_id = c.id AND d.proven IS NULL AND (
    EXISTS (SELECT FROM open AS u WHERE u.attempt_id = d.attempt_id AND u.refused AND NOT u.accepted)
    OR ((c.state = 'submitted' OR c.id IN (SELECT id FROM submitted)) AND (
      SELECT count(*) FROM known AS k WHERE k.outbox_id = c.id AND (k.outcome IN ('accepted', 'unknown') OR k.is_proven)) < 2))
)
SELECT
  (SELECT count(*) FROM submitted WHERE was = 'ambiguous') AS from_ambiguous,
  (SELECT count(*) FROM submitted WHERE was = 'failed') AS from_held,
  (SELECT count(*) FROM submitted WHERE was = 'pending') AS from_pending,
  (SELECT count(*) FROM again) AS refused,
  (SELECT count(*) FROM twice) AS duplicates,
  (SELECT count(*) FROM cleared AS c
   WHERE c.state = 'submitted' AND NOT c.accepted AND c.outbox_id NOT IN (SELECT outbox_id FROM taken)) AS contradicted;
