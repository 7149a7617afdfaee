-- Suppresses, keeping the earliest evidence; a row that says the same already is not touched. $1 recipient key, $2 tenant, $3 lane, $4 reason, $5 evidence id text[], $6 evidence at timestamptz[], $7 rule version int[].
INSERT INTO suppression AS s (recipient_key, tenant, lane, reason, evidence_id, evidence_at, rule_version)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::int[])
  AS n (recipient_key, tenant, lane, reason, evidence_id, evidence_at, rule_version)
ORDER BY recipient_key COLLATE "C", tenant COLLATE "C", lane, reason
ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE SET
  evidence_id = CASE WHEN (excluded.evidence_at, excluded.evidence_id COLLATE "C") < (s.evidence_at, s.evidence_id COLLATE "C") THEN excluded.evidence_id ELSE s.evidence_id END,
  evidence_at = least(excluded.evidence_at, s.evidence_at),
  rule_version = greatest(excluded.rule_version, s.rule_version),
  expires = NULL
WHERE (excluded.evidence_at, excluded.evidence_id COLLATE "C") < (s.evidence_at, s.evidence_id COLLATE "C")
  OR s.expires IS NOT NULL
RETURNING recipient_key;
