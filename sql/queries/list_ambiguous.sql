-- A page of the calls of unknown outcome that nobody has decided: rows that are ambiguous, or held for a person. $1 after attempt id uuid, $2 tenant text or null, $3 at least so old interval, $4 at most int.
SELECT u.attempt_id, u.outbox_id, u.since, u.held, o.state, o.tenant, o.lane, o.on_ambiguous AS policy, o.attempts, o.expires_at
FROM email_unsettled AS u
CROSS JOIN LATERAL (
  SELECT o.state, o.tenant, o.lane, o.on_ambiguous, o.attempts, o.expires_at
  FROM email_outbox AS o WHERE o.id = u.outbox_id OFFSET 0) AS o
WHERE u.attempt_id > $1 AND u.decided IS NULL AND u.since <= now() - $3::interval
  AND (o.state = 'ambiguous' OR (o.state = 'failed' AND u.held IS NOT NULL))
  AND ($2::text IS NULL OR o.tenant = $2)
ORDER BY u.attempt_id
LIMIT $4;
