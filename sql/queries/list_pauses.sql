-- The pauses in force, with how many rows wait for the end of one, at most 100,000 of them counted. No parameters.
SELECT p.scope, p.value, p.who, p.reason, p.since, p.until,
  (SELECT count(*) FROM (
    SELECT FROM email_due AS d
    WHERE d.why = 'paused' AND d.due <= statement_timestamp() + interval '30 seconds' LIMIT 100000) AS h) AS held
FROM pause AS p
WHERE p.until IS NULL OR p.until > statement_timestamp()
ORDER BY p.scope, p.value
