-- Turns rows whose lease ran out, still under its token, into 'ambiguous' and keeps the attempt as unknown; returns their ids. $1 at most int.
WITH ran_out AS MATERIALIZED (
  SELECT l.id, l.attempt_id, l.started, l.expires, o.state, o.attempt_id AS token
  FROM email_lease AS l
  JOIN email_outbox AS o ON o.id = l.id
  WHERE l.expires <= now()
  ORDER BY l.expires
  LIMIT $1
  FOR NO KEY UPDATE OF o SKIP LOCKED
),
lost AS (
  UPDATE email_outbox AS o
  SET state = 'ambiguous', attempt_id = NULL, reason = 'its lease ran out before the outcome of the call was written', changed = clock_timestamp()
  FROM ran_out AS r
  WHERE o.id = r.id AND r.state = 'sending' AND r.token = r.attempt_id
  RETURNING o.id, r.attempt_id, r.started, o.attempts
),
gone AS (
  DELETE FROM email_lease AS l USING ran_out AS r WHERE l.id = r.id AND l.attempt_id = r.attempt_id
),
kept AS (
  INSERT INTO email_attempt (id, outbox_id, number, started, finished, outcome, error_class, reason)
  SELECT attempt_id, id, attempts, started, clock_timestamp(), 'unknown', 'lease-expired', 'its lease ran out before the outcome of the call was written'
  FROM lost
  ON CONFLICT (id) DO NOTHING
),
unsettled AS (
  INSERT INTO email_unsettled (attempt_id, outbox_id) SELECT attempt_id, id FROM lost ON CONFLICT DO NOTHING
)
SELECT id FROM lost;
