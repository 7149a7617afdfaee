-- The kept bounces of these tenants' recipients that are newer than their last delivery: when, of which message, and what they say. A full mailbox may have 100,000 of them. $1 tenant text[] ("*": unknown), $2 recipient key text[], $3 last delivery timestamptz[].
SELECT e.tenant, e.recipient_key, e.event_id, e.at, e.payload ->> 'bounce' AS bounce,
  -- As message_of() in Python tells it.
  coalesce(nullif(e.provider_message_id, ''), e.outbox_id::text, e.event_id) AS message
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS r (tenant, recipient_key, last_delivery)
JOIN email_event AS e ON e.recipient_key = r.recipient_key AND e.type = 'bounced' AND e.at > coalesce(r.last_delivery, '-infinity')
WHERE coalesce(e.tenant, '*') = r.tenant;
