-- Keys of the accept API, without their hashes. $1 tenant text or null.
SELECT k.id, k.tenant, k.label, k.test, k.scopes, k.created, k.expires, k.revoked
FROM api_key AS k WHERE $1::text IS NULL OR k.tenant = $1
ORDER BY k.tenant, k.created, k.id;
