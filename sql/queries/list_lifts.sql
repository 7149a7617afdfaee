-- The lifts that concern a recipient, newest first. $1 recipient key text.
SELECT at, tenant, lane, reason, by_whom, why, recipient_key = '*' AS of_everybody
FROM suppression_log WHERE recipient_key IN ('*', $1)
ORDER BY at DESC;
