-- Recipients to delete from the provider's list: one, or those whose address nobody knows. $1 recipient key text or null.
SELECT recipient_key, address IS NOT NULL AS has_address, requested, due, tries
FROM provider_unlisting
WHERE recipient_key = $1 OR ($1::text IS NULL AND address IS NULL)
ORDER BY requested
LIMIT 1000;
