-- Ends a key of the accept API for good. $1 id text, $2 by whom text, $3 why text.
WITH done AS (
  UPDATE api_key SET revoked = coalesce(revoked, clock_timestamp()) WHERE id = $1 RETURNING id, tenant, revoked
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, detail)
  SELECT $2, 'api-key.revoked', $3, jsonb_build_object('key', d.id, 'tenant', d.tenant) FROM done AS d
)
SELECT id, tenant, revoked FROM done;
