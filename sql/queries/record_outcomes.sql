-- Writes what came of attempts, each under its token: a row is moved only while it is 'sending' under that attempt id.
-- The attempt itself is always kept, also when it comes too late: what it knows is evidence. Says of each attempt whether
-- it was applied, repeated (written before) or stale. Waits for locked rows.
-- $1 ids uuid[], $2 attempt ids uuid[] (each once), $3 numbers int[], $4 kinds text[], $5 started timestamptz[],
-- $6 finished timestamptz[], $7 delays in seconds float8[], $8 provider message ids text[], $9 error classes text[],
-- $10 codes text[], $11 HTTP statuses int[], $12 reasons text[], $13 left out keys text[] (separated by commas),
-- $14 the most attempts int
-- The rows are locked in the order of their ids, the attempts written in the order of theirs: nobody waits for another who waits for it.
WITH told AS MATERIALIZED (
  SELECT t.*, o.state, o.attempt_id, o.attempts, o.expires_at
  FROM (
    SELECT t.* FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::float8[],
      $8::text[], $9::text[], $10::text[], $11::int[], $12::text[], $13::text[]) AS t (
      id, token, number, kind, started, finished, delay, provider_message_id, error_class, code, http_status, reason, left_out)
    ORDER BY t.id) AS t
  LEFT JOIN LATERAL (
    SELECT o.state, o.attempt_id, o.attempts, o.expires_at
    FROM email_outbox AS o WHERE o.id = t.id FOR NO KEY UPDATE) AS o ON true
),
judged AS MATERIALIZED (
  SELECT t.id, t.token, t.kind, t.error_class, now.due,
    CASE
      WHEN t.kind = 'accepted' THEN 'submitted'
      WHEN t.kind = 'unknown' THEN 'ambiguous'
      WHEN t.kind IN ('permanent', 'unsendable') THEN 'failed'
      WHEN t.kind = 'retry' AND t.attempts >= $14::int THEN 'failed'
      ELSE 'pending'
    END AS next_state,
    CASE WHEN t.kind IN ('throttled', 'account-stop', 'misconfigured', 'released', 'unsendable') THEN 1 ELSE 0 END AS refunded,
    CASE
      WHEN t.kind = 'retry' AND t.attempts >= $14::int
        THEN 'all ' || t.attempts || ' attempts are used up, the last one: ' || coalesce(t.reason, 'no reason')
      ELSE t.reason
    END AS why
  FROM told AS t
  -- Nothing is tried after expires_at: whoever looks at the row then writes that it has expired.
  CROSS JOIN LATERAL (SELECT least(statement_timestamp() + make_interval(secs => t.delay), t.expires_at) AS due) AS now
  WHERE t.state = 'sending' AND t.attempt_id = t.token
),
-- = ANY of one: no other plan than to read by the key, however few rows the planner believes the table to have.
moved AS (
  UPDATE email_outbox AS o
  SET state = j.next_state,
    attempt_id = NULL,
    attempts = greatest(o.attempts - j.refunded, 0),
    reason = CASE WHEN j.next_state = 'submitted' THEN NULL ELSE coalesce(j.why, o.reason) END,
    changed = statement_timestamp()
  FROM judged AS j
  WHERE o.id = ANY (ARRAY[j.id])
  RETURNING o.id, o.state, o.tenant, o.lane, o.recipient_key, o.traceparent, j.token, j.kind, j.due, j.error_class, j.why,
    CASE WHEN j.next_state = 'failed' THEN life_cycle_event(o, 'failed', j.why) END AS event,
    CASE WHEN j.next_state = 'failed' THEN outbox_pointer(o, statement_timestamp()) END AS pointer
),
returned AS (
  DELETE FROM email_lease AS e WHERE e.attempt_id = ANY ($2::uuid[])
),
woken AS (
  INSERT INTO email_due (id, due, tenant, lane, why)
  SELECT m.id, m.due, m.tenant, m.lane,
    CASE WHEN m.kind IN ('retry', 'throttled') THEN 'retry' WHEN m.kind = 'released' THEN 'released' ELSE 'paused' END
  FROM moved AS m WHERE m.state = 'pending'
  ORDER BY m.id
  -- What stands there is older than the attempt.
  ON CONFLICT (id) DO UPDATE SET due = excluded.due, why = excluded.why
),
unsettled AS (
  INSERT INTO email_unsettled (attempt_id, outbox_id)
  SELECT m.token, m.id FROM moved AS m WHERE m.state = 'ambiguous'
  ON CONFLICT DO NOTHING
),
dead AS (
  INSERT INTO dead_letter (outbox_id, tenant, lane, class, reason, attempt_id)
  SELECT m.id, m.tenant, m.lane, coalesce(m.error_class, m.kind), coalesce(m.why, 'no reason'), m.token
  FROM moved AS m WHERE m.state = 'failed'
),
announced AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'delivery-events', m.recipient_key, 'failed', m.event, 'traceparent=' || m.traceparent
  FROM moved AS m WHERE m.state = 'failed'
  UNION ALL
  SELECT 'dead-letters', m.recipient_key, 'dead-letter', m.pointer || jsonb_build_object(
      'class', coalesce(m.error_class, m.kind), 'reason', coalesce(m.why, 'no reason'), 'attempt_id', m.token),
    'traceparent=' || m.traceparent
  FROM moved AS m WHERE m.state = 'failed'
),
kept AS (
  INSERT INTO email_attempt AS e (id, outbox_id, number, started, finished, outcome, provider_message_id, error_class, code,
    http_status, reason, left_out)
  SELECT t.token, t.id, t.number, t.started, t.finished, t.kind, t.provider_message_id, t.error_class, t.code,
    t.http_status, t.reason, string_to_array(t.left_out, ',')
  FROM told AS t WHERE t.kind NOT IN ('released', 'unsendable')
  ORDER BY t.token
  ON CONFLICT (id) DO UPDATE
  SET outcome = excluded.outcome, started = coalesce(excluded.started, e.started), finished = excluded.finished,
    provider_message_id = excluded.provider_message_id, error_class = excluded.error_class, code = excluded.code,
    http_status = excluded.http_status, reason = excluded.reason, left_out = coalesce(excluded.left_out, e.left_out)
  WHERE e.outcome = 'unknown' AND excluded.outcome <> 'unknown'
),
-- Who never called SES knows it, also after the lease ran out and the attempt was written down as unknown.
disproved AS (
  UPDATE email_attempt AS e
  SET outcome = 'retry', started = NULL, finished = t.finished, error_class = 'not-called', reason = 'SES was not called'
  FROM told AS t
  WHERE e.id = ANY (ARRAY[t.token]) AND t.kind IN ('released', 'unsendable') AND e.outcome = 'unknown'
),
-- The same where this statement waited for the end of the lease: its snapshot still has the lease, and not the attempt.
disproved_late AS (
  INSERT INTO email_attempt AS e (id, outbox_id, number, finished, outcome, error_class, reason)
  SELECT t.token, t.id, t.number, t.finished, 'retry', 'not-called', 'SES was not called'
  FROM told AS t
  WHERE t.kind IN ('released', 'unsendable') AND (t.state <> 'sending' OR t.attempt_id IS DISTINCT FROM t.token)
    AND t.token = ANY (ARRAY(SELECT l.attempt_id FROM email_lease AS l WHERE l.attempt_id = ANY ($2::uuid[])))
  ORDER BY t.token
  ON CONFLICT (id) DO UPDATE
  SET outcome = excluded.outcome, started = NULL, finished = excluded.finished, error_class = excluded.error_class, reason = excluded.reason
  WHERE e.outcome = 'unknown'
)
SELECT t.token AS attempt_id,
  CASE
    WHEN m.token IS NOT NULL THEN 'applied'
    WHEN EXISTS (SELECT FROM email_attempt AS e WHERE e.id = t.token AND e.outcome = t.kind) THEN 'repeated'
    ELSE 'stale'
  END AS recorded,
  m.state
FROM told AS t
LEFT JOIN moved AS m ON m.token = t.token
