-- Suppresses by hand what imported_recipient holds, in one statement; what is suppressed longer already stays so. $1 tenant, $2 lane, $3 by whom, $4 why text, $5 for how long interval or null, $6 lines that were left out bigint.
WITH entry AS (
  INSERT INTO audit_log (by_whom, action, why, detail)
  SELECT $3::text, 'import suppressions', $4::text, jsonb_build_object('tenant', $1::text, 'lane', $2::text,
    'days', extract(epoch FROM $5::interval) / 86400, 'addresses', (SELECT count(*) FROM imported_recipient), 'left_out', $6::bigint)
  RETURNING id, at
),
done AS (
  INSERT INTO suppression AS s (recipient_key, tenant, lane, reason, evidence_id, evidence_at, expires)
  SELECT DISTINCT ON (r.recipient_key COLLATE "C") r.recipient_key, $1, $2, 'manual', 'manual:' || e.id, e.at, e.at + $5::interval
  FROM imported_recipient AS r, entry AS e
  ORDER BY r.recipient_key COLLATE "C"
  ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE
  SET evidence_id = excluded.evidence_id, evidence_at = excluded.evidence_at, expires = excluded.expires
  WHERE coalesce(excluded.expires, 'infinity') > coalesce(s.expires, 'infinity')
  RETURNING xmax = 0 AS is_new
)
SELECT (SELECT count(DISTINCT recipient_key) FROM imported_recipient) AS recipients,
  (SELECT count(*) FROM done WHERE is_new) AS added, (SELECT count(*) FROM done WHERE NOT is_new) AS extended;
