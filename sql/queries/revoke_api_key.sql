-- Ends a key of the accept API for good. $1 id text.
UPDATE api_key SET revoked = coalesce(revoked, clock_timestamp()) WHERE id = $1 RETURNING id, tenant, revoked;
