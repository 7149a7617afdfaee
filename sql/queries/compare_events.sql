-- Kept events that are not as they were rebuilt; since: their time. The payload is not compared: one fact may come in two shapes.
SELECT CASE WHEN l.event_id IS NULL THEN 'missing' WHEN r.event_id IS NULL THEN 'surplus'
    WHEN r.outbox_id IS NULL AND l.outbox_id IS NOT NULL THEN 'fuller' ELSE 'different' END AS what,
  coalesce(l.recipient_key, r.recipient_key) AS recipient_key, least(l.at, r.at) AS since,
  coalesce(l.event_id, r.event_id) AS row
FROM email_event AS l
FULL JOIN rebuilt_event AS r ON l.event_id = r.event_id AND l.recipient_key = r.recipient_key
WHERE (l.event_id IS NULL OR r.event_id IS NULL OR (l.type, l.at, l.tenant, l.outbox_id, l.attempt_id, l.provider_message_id)
    IS DISTINCT FROM (r.type, r.at, r.tenant, r.outbox_id, r.attempt_id, r.provider_message_id))
  AND NOT EXISTS (SELECT FROM rebuilt_meanwhile AS m WHERE m.recipient_key = coalesce(l.recipient_key, r.recipient_key));
