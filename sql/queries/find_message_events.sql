-- The kept events of these messages about these recipients, without their raw payload. $1 outbox id uuid[], $2 recipient key text[].
SELECT e.event_id, e.recipient_key, e.type, e.at, e.tenant, e.outbox_id, e.payload - 'raw' AS payload
FROM unnest($1::uuid[], $2::text[]) AS m (outbox_id, recipient_key)
JOIN email_event AS e ON e.outbox_id = m.outbox_id AND e.recipient_key = m.recipient_key;
