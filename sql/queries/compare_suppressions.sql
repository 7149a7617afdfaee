-- Suppressions in force that are not as they were rebuilt; what was put in by hand or comes from the provider's list stands for itself. since: the older time of evidence, or of the streak behind it.
WITH live AS (
  SELECT s.*, s.evidence_id IS NULL OR s.reason = 'manual' OR s.evidence_id LIKE 'ses-list:%' AS is_own FROM suppression AS s
  WHERE s.expires IS NULL OR s.expires > now()
),
rebuilt AS (
  SELECT * FROM rebuilt_suppression WHERE expires IS NULL OR expires > now()
)
SELECT CASE WHEN l.recipient_key IS NULL THEN 'missing' WHEN r.recipient_key IS NULL THEN 'surplus' ELSE 'different' END AS what,
  coalesce(l.recipient_key, r.recipient_key) AS recipient_key,
  least(l.evidence_at, r.evidence_at, CASE WHEN coalesce(l.reason, r.reason) = 'soft-bounces' THEN (
    SELECT t.soft_bounces_since FROM recipient_state AS t
    WHERE t.tenant = coalesce(l.tenant, r.tenant) AND t.recipient_key = coalesce(l.recipient_key, r.recipient_key)) END) AS since,
  concat_ws(' ', coalesce(l.tenant, r.tenant), coalesce(l.lane, r.lane), coalesce(l.reason, r.reason), coalesce(l.evidence_id, r.evidence_id)) AS row
FROM live AS l
FULL JOIN rebuilt AS r ON l.recipient_key = r.recipient_key AND l.tenant = r.tenant AND l.lane = r.lane AND l.reason = r.reason
WHERE l.is_own IS NOT TRUE
  AND (l.evidence_id, l.evidence_at, l.unattributed, l.expires) IS DISTINCT FROM (r.evidence_id, r.evidence_at, r.unattributed, r.expires)
  AND NOT EXISTS (SELECT FROM rebuilt_meanwhile AS m WHERE m.recipient_key = coalesce(l.recipient_key, r.recipient_key));
