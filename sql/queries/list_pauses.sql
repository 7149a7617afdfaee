-- The pauses in force, with how many rows sleep until the end of one, of at most 100,000 that are due within half a minute. No parameters.
SELECT p.scope, p.value, p.who, p.reason, p.since, p.until,
  (SELECT count(*) FILTER (WHERE h.why = 'paused') FROM (
    SELECT d.why FROM email_due AS d WHERE d.due <= statement_timestamp() + interval '30 seconds' LIMIT 100000) AS h) AS held
FROM pause AS p
WHERE p.until IS NULL OR p.until > statement_timestamp()
ORDER BY p.scope, p.value
