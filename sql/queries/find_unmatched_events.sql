-- A page of the kept events without a message, oldest first; with the event where its attempt or its message is known by now. $1 received after timestamptz, $2 received before timestamptz, $3 at most int.
SELECT e.received, e.event_id, e.recipient_key, e.type, e.at, CASE WHEN e.known THEN e.payload END AS payload
FROM (
  SELECT u.*,
    EXISTS (SELECT FROM email_attempt AS a WHERE a.id = u.attempt_id)
      OR EXISTS (SELECT FROM email_attempt AS a WHERE a.provider_message_id = u.provider_message_id)
      OR EXISTS (SELECT FROM email_event AS x WHERE x.provider_message_id = u.provider_message_id AND x.outbox_id IS NOT NULL) AS known
  FROM email_event AS u
  WHERE u.outbox_id IS NULL AND u.received > $1 AND u.received <= $2
  ORDER BY u.received
  LIMIT $3
) AS e
ORDER BY e.received;
