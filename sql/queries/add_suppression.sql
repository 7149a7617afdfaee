-- Suppresses by hand; what is suppressed longer already stays so. $1 recipient key, $2 tenant, $3 lane, $4 by whom, $5 why text, $6 for how long interval or null.
WITH entry AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  VALUES ($4::text, 'suppress', $5::text, $1::text, jsonb_build_object('tenant', $2::text, 'lane', $3::text, 'days', extract(epoch FROM $6::interval) / 86400))
  RETURNING id, at
),
done AS (
  INSERT INTO suppression AS s (recipient_key, tenant, lane, reason, evidence_id, evidence_at, expires)
  SELECT $1, $2, $3, 'manual', 'manual:' || id, at, at + $6::interval FROM entry
  ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE
  SET evidence_id = excluded.evidence_id, evidence_at = excluded.evidence_at, expires = excluded.expires
  WHERE coalesce(excluded.expires, 'infinity') > coalesce(s.expires, 'infinity')
  RETURNING xmax = 0 AS is_new
)
SELECT coalesce((SELECT CASE WHEN is_new THEN 'added' ELSE 'extended' END FROM done), 'was there') AS outcome;
