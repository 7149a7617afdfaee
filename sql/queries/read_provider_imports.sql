-- How far the import of each list is. $1 scope text, or null for all.
SELECT scope, asked, started, finished, pages, entries, suppressed, lifted, unusable
FROM provider_list WHERE scope = $1 OR $1::text IS NULL
ORDER BY scope;
