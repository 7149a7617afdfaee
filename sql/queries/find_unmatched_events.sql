-- A page of the kept events without a message, oldest first; with the event where its attempt or its message is known by now. $1 received after timestamptz, $2 received before timestamptz, $3 at most int.
SELECT e.received, e.event_id, e.recipient_key, e.type, e.at,
  -- Scalar subqueries, since the planner would hash the whole table for an EXISTS.
  CASE WHEN (SELECT true FROM email_attempt AS a WHERE a.id = e.attempt_id)
    OR (SELECT true FROM email_attempt AS a WHERE a.provider_message_id = e.provider_message_id LIMIT 1)
    OR (SELECT true FROM email_event AS x WHERE x.provider_message_id = e.provider_message_id AND x.outbox_id IS NOT NULL LIMIT 1)
  THEN e.payload END AS payload
FROM email_event AS e
WHERE e.outbox_id IS NULL AND e.received > $1 AND e.received <= $2
ORDER BY e.received
LIMIT $3;
