-- The kept bounces of these tenants' recipients that are newer than their last delivery, without their raw payload. $1 tenant text[] ("*": unknown), $2 recipient key text[], $3 last delivery timestamptz[].
SELECT e.tenant, e.outbox_id, e.event_id, e.recipient_key, e.type, e.at, e.payload - 'raw' AS payload
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS r (tenant, recipient_key, last_delivery)
JOIN email_event AS e ON e.recipient_key = r.recipient_key AND e.type = 'bounced' AND coalesce(e.tenant, '*') = r.tenant
WHERE r.last_delivery IS NULL OR e.at > r.last_delivery;
