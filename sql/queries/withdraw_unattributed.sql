-- Withdraws suppressions for every tenant whose evidence now has a tenant of its own. $1 recipient key text[], $2 evidence id text[], $3 reason text[].
DELETE FROM suppression AS s
USING unnest($1::text[], $2::text[], $3::text[]) AS n (recipient_key, evidence_id, reason)
WHERE s.recipient_key = n.recipient_key AND s.evidence_id = n.evidence_id AND s.tenant = '*' AND s.reason = n.reason
RETURNING s.recipient_key;
