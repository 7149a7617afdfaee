-- For which tenants ("*": unknown) there is evidence about these recipients. $1 recipient key text[].
SELECT DISTINCT coalesce(e.tenant, '*') AS tenant, e.recipient_key
FROM email_event AS e
WHERE e.recipient_key = ANY ($1::text[]) AND e.type IN ('bounced', 'complained', 'unsubscribed');
