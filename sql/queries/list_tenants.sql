-- Tenants of the accept API with their limits. $1 name text or null.
SELECT name, senders, per_second, burst, quota, quota_period, quota_since, quota_used
FROM tenant WHERE $1::text IS NULL OR name = $1 ORDER BY name;
