-- The kept events of these recipients whose message is unknown, as far as they count in a state or a suppression. $1 recipient key text[].
SELECT event_id, recipient_key, type, at, payload
FROM email_event
WHERE recipient_key = ANY ($1::text[]) AND outbox_id IS NULL AND type IN ('delivered', 'bounced', 'complained', 'unsubscribed');
