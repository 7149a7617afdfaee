-- One key of the accept API, and what its tenant may write as sender. $1 id text.
SELECT k.id, k.tenant, k.test, k.scopes, k.hash, k.expires, k.revoked, t.senders
FROM api_key AS k JOIN tenant AS t ON t.name = k.tenant
WHERE k.id = $1;
