-- Keeps the events that are new, and completes those that were kept without their message or their attempt; returns both. $1 event id text[], $2 recipient key text[], $3 type text[], $4 at timestamptz[], $5 tenant text[], $6 outbox id uuid[], $7 attempt id uuid[], $8 provider message id text[], $9 payload jsonb as text[].
INSERT INTO email_event AS e (event_id, recipient_key, type, at, tenant, outbox_id, attempt_id, provider_message_id, payload)
SELECT event_id, recipient_key, type, at, tenant, outbox_id, attempt_id, provider_message_id, payload::jsonb
FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::uuid[], $7::uuid[], $8::text[], $9::text[])
  AS n (event_id, recipient_key, type, at, tenant, outbox_id, attempt_id, provider_message_id, payload)
ORDER BY event_id COLLATE "C", recipient_key COLLATE "C"
ON CONFLICT (event_id, recipient_key) DO UPDATE SET
  outbox_id = coalesce(e.outbox_id, excluded.outbox_id),
  tenant = coalesce(e.tenant, excluded.tenant),
  attempt_id = coalesce(e.attempt_id, excluded.attempt_id),
  payload = CASE WHEN e.payload ->> 'attempt_id' IS NULL THEN excluded.payload ELSE e.payload END
WHERE (e.outbox_id IS NULL AND excluded.outbox_id IS NOT NULL)
  OR (e.attempt_id IS NULL AND excluded.attempt_id IS NOT NULL)
  OR (e.payload ->> 'attempt_id' IS NULL AND excluded.payload ->> 'attempt_id' IS NOT NULL)
RETURNING event_id, recipient_key, xmax = 0 AS is_new;
