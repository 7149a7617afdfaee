-- Locks the recipients' rows, every fold in the same order, and returns them. $1 tenant text[], $2 recipient key text[].
SELECT s.tenant, s.recipient_key, s.last_delivery, s.hard_bounce, s.complaint, s.soft_bounce_streak, s.soft_bounces_since
FROM unnest($1::text[], $2::text[]) AS r (tenant, recipient_key)
JOIN recipient_state AS s USING (tenant, recipient_key)
ORDER BY s.tenant COLLATE "C", s.recipient_key COLLATE "C"
FOR UPDATE OF s;
