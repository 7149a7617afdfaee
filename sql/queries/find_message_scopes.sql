-- For which tenants there are events of these messages about these recipients. $1 outbox id uuid[], $2 recipient key text[].
SELECT DISTINCT coalesce(e.tenant, '*') AS tenant, e.recipient_key
FROM unnest($1::uuid[], $2::text[]) AS m (outbox_id, recipient_key)
JOIN email_event AS e ON e.outbox_id = m.outbox_id AND e.recipient_key = m.recipient_key;
