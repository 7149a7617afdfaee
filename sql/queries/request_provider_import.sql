-- Asks for an import of the list from its beginning; of one that is under way already it changes nothing. $1 scope text.
INSERT INTO provider_list AS p (scope) VALUES ($1)
ON CONFLICT (scope) DO UPDATE SET asked = clock_timestamp(), started = NULL, finished = NULL, next_token = NULL,
  pages = 0, entries = 0, suppressed = 0, lifted = 0, unusable = 0
WHERE p.finished IS NOT NULL;
