-- The suppressions of these recipients, as they are. $1 recipient key text[].
SELECT recipient_key, tenant, lane, reason, evidence_id, evidence_at, unattributed, rule_version, expires
FROM suppression
WHERE recipient_key = ANY ($1::text[]);
