-- Suppresses, keeping the evidence that is told and the longest time; a row that says the same already is not touched. $1 recipient key, $2 tenant, $3 lane, $4 reason, $5 evidence id text[], $6 evidence at timestamptz[], $7 unattributed bool[], $8 rule version int[].
INSERT INTO suppression AS s (recipient_key, tenant, lane, reason, evidence_id, evidence_at, unattributed, rule_version)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::bool[], $8::int[])
  AS n (recipient_key, tenant, lane, reason, evidence_id, evidence_at, unattributed, rule_version)
ORDER BY recipient_key COLLATE "C", tenant COLLATE "C", lane, reason
ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE SET
  -- The same total order as Suppression.rank: what names one person before what names several, then the earliest, then the id.
  (evidence_id, evidence_at, unattributed) = (
    SELECT e.id, e.at, e.unattributed
    FROM (VALUES (s.evidence_id, s.evidence_at, s.unattributed), (excluded.evidence_id, excluded.evidence_at, excluded.unattributed))
      AS e (id, at, unattributed)
    ORDER BY e.id IS NULL DESC, e.unattributed, e.at, e.id COLLATE "C"
    LIMIT 1),
  rule_version = greatest(excluded.rule_version, s.rule_version),
  expires = NULL
WHERE (excluded.unattributed, excluded.evidence_at, excluded.evidence_id COLLATE "C") < (s.unattributed, s.evidence_at, s.evidence_id COLLATE "C")
  OR s.expires IS NOT NULL
RETURNING recipient_key;
