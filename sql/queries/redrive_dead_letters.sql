-- Gives failed rows of a page of dead letters another life: 'pending' with a wake-up of its own time each; one that SES is known to have taken becomes 'submitted' instead. Says of each letter what became of it; with $9 it only says. Never waits for a lock.
-- $1 dead letter ids uuid[], $2 event types that prove acceptance text[], $3 send held rows too boolean, $4 new time to live interval or null, $5 rows a second float8, $6 due from timestamptz or null, $7 by whom text, $8 why text, $9 dry run boolean
WITH letter AS MATERIALIZED (
  SELECT l.id AS letter_id, l.outbox_id AS id, l.class, o.changed,
    EXISTS (SELECT FROM dead_letter AS n WHERE n.outbox_id = l.outbox_id AND (n.created, n.id) > (l.created, l.id)) AS is_older
  FROM dead_letter AS l
  LEFT JOIN LATERAL (SELECT o.changed FROM email_outbox AS o WHERE o.id = l.outbox_id OFFSET 0) AS o ON true
  WHERE l.id = ANY ($1::uuid[])
),
locked AS MATERIALIZED (
  SELECT s.letter_id, o.*
  FROM (SELECT * FROM letter WHERE NOT is_older ORDER BY id) AS s
  CROSS JOIN LATERAL (
    SELECT o.state, o.changed = s.changed AS is_as_seen, o.expires_at, o.purged
    FROM email_outbox AS o WHERE o.id = s.id FOR NO KEY UPDATE SKIP LOCKED) AS o
),
judged AS MATERIALIZED (
  SELECT l.letter_id, l.id, k.state,
    CASE
      WHEN l.is_older THEN 'older'
      WHEN l.changed IS NULL THEN 'absent'
      WHEN k.letter_id IS NULL OR NOT k.is_as_seen THEN 'busy'
      WHEN k.state <> 'failed' THEN 'not-failed'
      WHEN EXISTS (SELECT FROM email_attempt AS t WHERE t.outbox_id = l.id AND t.outcome = 'accepted')
        OR EXISTS (SELECT FROM email_event AS e WHERE e.outbox_id = l.id AND e.type = ANY ($2::text[])) THEN 'submitted'
      WHEN k.purged IS NOT NULL THEN 'purged'
      WHEN NOT $3 AND (l.class = 'held' OR EXISTS (
        SELECT FROM email_unsettled AS u WHERE u.outbox_id = l.id AND u.decided IS NULL)) THEN 'held'
      WHEN $4::interval IS NULL AND k.expires_at <= greatest($6::timestamptz, now()) THEN 'expired'
      ELSE 'redriven'
    END AS outcome
  FROM letter AS l
  LEFT JOIN locked AS k ON k.letter_id = l.letter_id
),
timed AS MATERIALIZED (
  SELECT j.letter_id, j.id, j.outcome,
    greatest($6::timestamptz, now()) + make_interval(secs => (row_number() OVER (PARTITION BY j.outcome ORDER BY j.letter_id) - 1) / $5::float8) AS due
  FROM judged AS j
),
moved AS (
  UPDATE email_outbox AS o
  SET state = CASE t.outcome WHEN 'submitted' THEN 'submitted' ELSE 'pending' END,
    attempts = CASE t.outcome WHEN 'submitted' THEN o.attempts ELSE 0 END,
    expires_at = CASE WHEN t.outcome = 'redriven' AND o.expires_at <= t.due THEN coalesce(t.due + $4::interval, o.expires_at) ELSE o.expires_at END,
    reason = CASE t.outcome WHEN 'redriven' THEN 'redriven by hand' END,
    changed = clock_timestamp()
  FROM timed AS t
  WHERE o.id = t.id AND t.outcome IN ('redriven', 'submitted') AND NOT $9
  RETURNING o.id, o.tenant, o.lane, o.recipient_key, t.outcome, t.due
),
noted AS (
  UPDATE email_unsettled AS u SET decided = clock_timestamp()
  FROM moved AS m WHERE u.outbox_id = m.id AND m.outcome = 'redriven' AND u.decided IS NULL
  RETURNING u.attempt_id, m.id, m.tenant
),
possible AS (
  INSERT INTO email_duplicate (attempt_id, outbox_id, tenant, why)
  SELECT n.attempt_id, n.id, n.tenant, 'redriven' FROM noted AS n
  ON CONFLICT (attempt_id) DO NOTHING
),
woken AS (
  INSERT INTO email_due AS d (id, due, tenant, lane, why)
  SELECT m.id, m.due, m.tenant, m.lane, 'retry' FROM moved AS m WHERE m.outcome = 'redriven'
  ON CONFLICT (id) DO UPDATE SET due = excluded.due, why = excluded.why
),
done AS (
  DELETE FROM dead_letter AS l WHERE l.outbox_id = ANY (ARRAY(SELECT id FROM moved))
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  SELECT $7, 'dead-letter.redriven', $8, m.recipient_key, jsonb_build_object('outbox_id', m.id, 'outcome', m.outcome,
    'possible_duplicate', EXISTS (SELECT FROM noted AS n WHERE n.id = m.id))
  FROM moved AS m
)
SELECT j.letter_id, j.id AS outbox_id, j.outcome, CASE WHEN j.outcome = 'redriven' THEN t.due END AS due,
  j.outcome = 'redriven' AND EXISTS (
    SELECT FROM email_unsettled AS u WHERE u.outbox_id = j.id AND u.decided IS NULL) AS possible_duplicate
FROM judged AS j
JOIN timed AS t ON t.letter_id = j.letter_id
ORDER BY j.letter_id;
