-- Suppressions in force of a tenant in the order of their recipients; of a single recipient those of all tenants too.
-- $1 tenant text, $2 recipient key text or null, $3 behind this key text, $4 so many rows int, and what else there is of the last recipient.
SELECT s.recipient_key, s.tenant = '*' AS of_all_tenants, s.lane, s.reason, s.created, s.expires
FROM suppression AS s
WHERE (s.tenant = $1 OR ($2::text IS NOT NULL AND s.tenant = '*')) AND ($2::text IS NULL OR s.recipient_key = $2)
  AND s.recipient_key > $3 AND (s.expires IS NULL OR s.expires > clock_timestamp())
ORDER BY s.recipient_key FETCH FIRST ($4::int) ROWS WITH TIES;
