-- Withdraws suppressions that rest on evidence, which no longer supports them. $1 recipient key, $2 tenant, $3 lane, $4 reason text[].
DELETE FROM suppression AS s
USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS n (recipient_key, tenant, lane, reason)
WHERE (s.recipient_key, s.tenant, s.lane, s.reason) = (n.recipient_key, n.tenant, n.lane, n.reason) AND s.evidence_id IS NOT NULL
RETURNING s.recipient_key;
