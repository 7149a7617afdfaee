-- Makes a tenant of the accept API, or changes its limits; null leaves one as it is, 0 takes a bound away. $1 name text, $2 senders text[] (empty: any), $3 messages a second float8, $4 burst int, $5 quota bigint (-1: none), $6 period of the quota text, $7 by whom text, $8 why text.
WITH logged AS (
  INSERT INTO audit_log (by_whom, action, why, detail)
  VALUES ($7, 'tenant.set', $8, jsonb_strip_nulls(jsonb_build_object('tenant', $1::text, 'senders', $2::text[], 'per_second', $3::float8,
    'burst', $4::int, 'quota', $5::bigint, 'quota_period', $6::text)))
)
INSERT INTO tenant AS t (name, senders, per_second, burst, quota, quota_period)
VALUES ($1, nullif($2::text[], '{}'), nullif($3::float8, 0), coalesce($4::int, 100), nullif($5::bigint, -1), coalesce($6::text, 'month'))
ON CONFLICT (name) DO UPDATE SET
  senders = CASE WHEN $2::text[] IS NULL THEN t.senders ELSE nullif($2, '{}') END,
  per_second = CASE WHEN $3::float8 IS NULL THEN t.per_second ELSE nullif($3, 0) END,
  burst = coalesce($4, t.burst),
  quota = CASE WHEN $5::bigint IS NULL THEN t.quota ELSE nullif($5, -1) END,
  quota_period = coalesce($6, t.quota_period)
RETURNING name, senders, per_second, burst, quota, quota_period, quota_since, quota_used;
