-- Settles ambiguous and held rows as a person says, and says of each id what became of it; with $5 it only says. Never waits for a lock. $1 outbox ids uuid[] (each once), $2 whether SES took them boolean, $3 by whom text, $4 why text, $5 dry run boolean, $6 event types that prove acceptance text[].
-- What the snapshot of this statement says of a row's evidence holds only where the row has not changed since.
WITH seen AS MATERIALIZED (
  SELECT a.id, o.changed
  FROM unnest($1::uuid[]) AS a (id)
  CROSS JOIN LATERAL (SELECT o.changed FROM email_outbox AS o WHERE o.id = a.id OFFSET 0) AS o
),
locked AS MATERIALIZED (
  SELECT s.id, o.state, o.tenant, o.recipient_key, o.expires_at, o.changed = s.changed AS is_as_seen
  FROM (SELECT * FROM seen ORDER BY id) AS s
  CROSS JOIN LATERAL (
    SELECT o.state, o.tenant, o.recipient_key, o.expires_at, o.changed
    FROM email_outbox AS o WHERE o.id = s.id FOR NO KEY UPDATE SKIP LOCKED) AS o
),
judged AS MATERIALIZED (
  SELECT a.id, l.state, l.tenant, l.recipient_key,
    CASE
      WHEN NOT EXISTS (SELECT FROM seen AS s WHERE s.id = a.id) THEN 'absent'
      WHEN l.id IS NULL OR NOT l.is_as_seen OR l.state = 'sending' THEN 'busy'
      WHEN l.state <> 'ambiguous' AND (l.state <> 'failed' OR (
        SELECT d.class FROM dead_letter AS d WHERE d.outbox_id = l.id ORDER BY d.created DESC, d.id DESC LIMIT 1) IS DISTINCT FROM 'held') THEN 'not-ambiguous'
      WHEN EXISTS (SELECT FROM email_attempt AS t WHERE t.outbox_id = l.id AND t.outcome = 'accepted')
        OR EXISTS (SELECT FROM email_event AS e WHERE e.outbox_id = l.id AND e.type = ANY ($6::text[])) THEN 'evident'
      WHEN $2 THEN 'submitted'
      WHEN l.expires_at <= now() THEN 'expired'
      ELSE 'pending'
    END AS outcome
  FROM unnest($1::uuid[]) AS a (id)
  LEFT JOIN locked AS l ON l.id = a.id
),
-- An expired one gets its end by its wake-up.
moved AS (
  UPDATE email_outbox AS o
  SET state = CASE WHEN $2 THEN 'submitted' ELSE 'pending' END,
    reason = CASE WHEN $2 THEN 'settled by hand: SES took it' ELSE 'settled by hand: SES did not take it' END,
    changed = clock_timestamp()
  FROM judged AS j
  WHERE o.id = j.id AND j.outcome IN ('submitted', 'pending', 'expired') AND NOT $5
  RETURNING o.id, o.tenant, o.lane, o.recipient_key, j.state AS was
),
noted AS (
  UPDATE email_unsettled AS u SET decided = clock_timestamp() FROM moved AS m WHERE u.outbox_id = m.id AND u.decided IS NULL
  RETURNING u.attempt_id, m.id, m.tenant
),
possible AS (
  INSERT INTO email_duplicate (attempt_id, outbox_id, tenant, why)
  SELECT n.attempt_id, n.id, n.tenant, 'settled-by-hand' FROM noted AS n WHERE NOT $2
  ON CONFLICT (attempt_id) DO NOTHING
),
due AS (
  INSERT INTO email_due AS d (id, due, tenant, lane, why)
  SELECT m.id, clock_timestamp(), m.tenant, m.lane, 'retry' FROM moved AS m WHERE NOT $2
  ON CONFLICT (id) DO UPDATE SET due = least(d.due, excluded.due)
),
done AS (
  DELETE FROM dead_letter AS l WHERE l.outbox_id = ANY (ARRAY(SELECT id FROM moved))
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  SELECT $3, 'ambiguous.settled', $4, m.recipient_key, jsonb_build_object('outbox_id', m.id, 'accepted', $2, 'was', m.was,
    'attempts', (SELECT jsonb_agg(n.attempt_id ORDER BY n.attempt_id) FROM noted AS n WHERE n.id = m.id))
  FROM moved AS m
)
SELECT j.id AS outbox_id, j.outcome, j.state FROM judged AS j ORDER BY j.id;
