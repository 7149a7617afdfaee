-- Moves the import on by one page, if it still stands where that page was asked for. $1 scope text, $2 asked timestamptz, $3 token of the page, $4 next token text, $5 entries, $6 unusable int.
UPDATE provider_list SET
  next_token = $4,
  started = coalesce(started, clock_timestamp()),
  finished = CASE WHEN $4::text IS NULL THEN clock_timestamp() END,
  pages = pages + 1, entries = entries + $5::int, unusable = unusable + $6::int
WHERE scope = $1 AND asked = $2 AND finished IS NULL AND next_token IS NOT DISTINCT FROM $3::text
RETURNING true;
