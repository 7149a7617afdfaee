-- Suppressions in the order of their recipients, with who put in by hand what was, and why. $1 recipient key text or null for all, $2 behind this key text, $3 reason text or null, $4 tenant text or null, $5 at most int.
SELECT s.recipient_key, s.tenant, s.lane, s.reason, s.evidence_id, s.evidence_at, s.unattributed, s.rule_version, s.created, s.expires,
  coalesce(s.expires <= clock_timestamp(), false) AS is_over, a.by_whom, a.why
FROM suppression AS s
LEFT JOIN audit_log AS a ON s.reason = 'manual' AND s.evidence_id = 'manual:' || a.id
WHERE ($1::text IS NULL OR s.recipient_key = $1) AND s.recipient_key > $2
  AND ($3::text IS NULL OR s.reason = $3) AND ($4::text IS NULL OR s.tenant = $4)
ORDER BY s.recipient_key, s.tenant, s.lane, s.reason
LIMIT $5;
