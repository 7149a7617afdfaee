-- Keeps a new key of the accept API, and makes its tenant if there is none. $1 id text, $2 tenant text, $3 label text, $4 hash bytea, $5 test bool, $6 scopes text[], $7 expires timestamptz or null, $8 by whom text.
WITH made AS (
  INSERT INTO tenant (name) VALUES ($2) ON CONFLICT (name) DO NOTHING
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, detail)
  VALUES ($8, 'api-key.created', $3, jsonb_build_object('key', $1::text, 'tenant', $2::text, 'test', $5::bool))
)
INSERT INTO api_key (id, tenant, label, hash, test, scopes, expires) VALUES ($1, $2, $3, $4, $5, $6, $7);
