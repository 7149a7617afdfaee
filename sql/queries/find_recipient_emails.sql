-- The next messages to a recipient that erasure has not emptied yet, in the order of their ids. $1 recipient key text, $2 after id uuid, $3 at most int.
SELECT o.id, o.state
FROM email_outbox AS o
WHERE o.recipient_key = $1 AND o.id > $2 AND o.recipient <> erased_address()
ORDER BY o.id
LIMIT $3
