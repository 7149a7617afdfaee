-- A page of the messages that SES may have taken twice, and of those that it has, with all their calls. $1 after attempt id uuid, $2 tenant text or null, $3 proven only (true), possible only (false) or both (null) boolean, $4 at most int.
SELECT d.attempt_id, d.outbox_id, d.tenant, d.why, d.since, d.proven,
  (SELECT o.state FROM email_outbox AS o WHERE o.id = d.outbox_id) AS state,
  (SELECT jsonb_agg(jsonb_build_object('attempt_id', a.id, 'number', a.number, 'outcome', a.outcome, 'finished', utc_text(a.finished),
     'provider_message_id', a.provider_message_id) ORDER BY a.id)
   FROM email_attempt AS a WHERE a.outbox_id = d.outbox_id) AS calls
FROM email_duplicate AS d
WHERE d.attempt_id > $1 AND ($2::text IS NULL OR d.tenant = $2) AND ($3::boolean IS NULL OR (d.proven IS NOT NULL) = $3)
ORDER BY d.attempt_id
LIMIT $4;
