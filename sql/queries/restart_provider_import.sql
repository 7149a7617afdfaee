-- The import begins with the first page again, since its token is refused. $1 scope text, $2 token text.
UPDATE provider_list SET next_token = NULL, started = NULL, pages = 0, entries = 0, suppressed = 0, lifted = 0, unusable = 0
WHERE scope = $1 AND finished IS NULL AND next_token IS NOT DISTINCT FROM $2::text;
