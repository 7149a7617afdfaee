-- Suppressions in the order of their recipients, with who put in by hand what was, and why. $1 recipient key text or null for all, $2 behind this key text, $3 reason text or null, $4 tenant text or null, $5 so many rows int, and what else there is of the last recipient.
SELECT s.recipient_key, s.tenant, s.lane, s.reason, s.evidence_id, s.evidence_at, s.unattributed, s.rule_version, s.created, s.expires,
  coalesce(s.expires <= clock_timestamp(), false) AS is_over, a.by_whom, a.why
FROM (
  SELECT p.* FROM suppression AS p
  WHERE ($1::text IS NULL OR p.recipient_key = $1) AND p.recipient_key > $2
    AND ($3::text IS NULL OR p.reason = $3) AND ($4::text IS NULL OR p.tenant = $4)
  -- The next page begins behind the last recipient of this one.
  ORDER BY p.recipient_key FETCH FIRST ($5::int) ROWS WITH TIES) AS s
LEFT JOIN audit_log AS a ON s.reason = 'manual' AND s.evidence_id = 'manual:' || a.id
ORDER BY s.recipient_key, s.tenant, s.lane, s.reason;
