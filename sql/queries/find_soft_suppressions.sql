-- Which of these tenants' recipients a streak of soft bounces suppresses. $1 tenant text[], $2 recipient key text[].
SELECT s.tenant, s.recipient_key
FROM unnest($1::text[], $2::text[]) AS r (tenant, recipient_key)
JOIN suppression AS s ON s.recipient_key = r.recipient_key AND s.tenant = r.tenant AND s.lane = '*' AND s.reason = 'soft-bounces'
WHERE s.evidence_id IS NOT NULL;
