-- Withdraws suppressions for every tenant whose evidence now has a tenant of its own. $1 recipient key text[], $2 evidence id text[].
DELETE FROM suppression AS s
USING unnest($1::text[], $2::text[]) AS n (recipient_key, evidence_id)
WHERE s.recipient_key = n.recipient_key AND s.evidence_id = n.evidence_id AND s.tenant = '*' AND s.reason IN ('complaint', 'unsubscribed')
RETURNING s.recipient_key;
