-- Makes the rows that lock_recipients locks, in their order. $1 tenant text[], $2 recipient key text[].
INSERT INTO recipient_state (tenant, recipient_key)
SELECT * FROM unnest($1::text[], $2::text[]) AS r (tenant, recipient_key)
ORDER BY tenant COLLATE "C", recipient_key COLLATE "C"
ON CONFLICT DO NOTHING;
