-- Suppresses what the provider lists, for every tenant and lane, unless it was lifted at that time or later; the recipients are locked. What is suppressed for this reason stays as it is. $1 recipient key, $2 evidence id text[], $3 listed at timestamptz[], $4 rule version int.
WITH listed AS MATERIALIZED (
  SELECT n.recipient_key, n.evidence_id, n.listed_at, EXISTS (
    SELECT FROM suppression_log AS l
    WHERE l.recipient_key IN ('*', n.recipient_key) AND l.tenant = '*' AND l.lane = '*' AND l.reason IN ('*', 'provider-suppression')
      AND l.at >= n.listed_at) AS is_lifted
  FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS n (recipient_key, evidence_id, listed_at)
),
suppressed AS (
  INSERT INTO suppression AS s (recipient_key, reason, evidence_id, evidence_at, rule_version)
  SELECT recipient_key, 'provider-suppression', evidence_id, listed_at, $4 FROM listed WHERE NOT is_lifted
  ORDER BY recipient_key COLLATE "C"
  ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE SET expires = NULL WHERE s.expires IS NOT NULL
  RETURNING s.recipient_key
)
SELECT (SELECT count(*) FROM suppressed) AS suppressed, (SELECT count(*) FROM listed WHERE is_lifted) AS lifted;
