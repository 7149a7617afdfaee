-- Sets suppressions that rest on evidence to exactly this; a row that says the same already is not touched, nor one that was put in by hand. $1 recipient key, $2 tenant, $3 lane, $4 reason, $5 evidence id text[], $6 evidence at timestamptz[], $7 unattributed bool[], $8 rule version int[], $9 expires timestamptz[].
INSERT INTO suppression AS s (recipient_key, tenant, lane, reason, evidence_id, evidence_at, unattributed, rule_version, expires)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::bool[], $8::int[], $9::timestamptz[])
  AS n (recipient_key, tenant, lane, reason, evidence_id, evidence_at, unattributed, rule_version, expires)
ORDER BY recipient_key COLLATE "C", tenant COLLATE "C", lane, reason
ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE SET
  evidence_id = excluded.evidence_id, evidence_at = excluded.evidence_at, unattributed = excluded.unattributed,
  rule_version = excluded.rule_version, expires = excluded.expires
WHERE s.evidence_id IS NOT NULL
  AND (s.evidence_id, s.evidence_at, s.unattributed, s.expires)
    IS DISTINCT FROM (excluded.evidence_id, excluded.evidence_at, excluded.unattributed, excluded.expires)
RETURNING recipient_key;
