-- The next recipients of whom there is evidence that a suppression can rest on, in the order of their keys. $1 recipient key text, $2 at most int.
SELECT DISTINCT e.recipient_key FROM email_event AS e
WHERE e.type IN ('bounced', 'complained', 'unsubscribed') AND e.recipient_key > $1
ORDER BY e.recipient_key
LIMIT $2;
