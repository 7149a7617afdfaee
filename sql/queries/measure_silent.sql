-- Of the next calls by id, how many SES took, by day (UTC), and of how many of those no event of any kind is known; without a call in between no row comes back. $1 after attempt id uuid, $2 before attempt id uuid, $3 at most int.
WITH page AS MATERIALIZED (
  SELECT a.id, a.outbox_id, a.finished, a.provider_message_id, a.outcome FROM email_attempt AS a WHERE a.id > $1 AND a.id < $2 ORDER BY a.id LIMIT $3
),
-- Scalar subqueries, since the planner would hash the whole table for an EXISTS.
judged AS (
  SELECT p.id, (p.finished AT TIME ZONE 'UTC')::date AS day, p.outcome = 'accepted' AS accepted,
    p.outcome = 'accepted' AND (
      (SELECT true FROM email_event AS e WHERE e.outbox_id = p.outbox_id LIMIT 1)
      OR (SELECT true FROM email_event AS e WHERE e.provider_message_id = p.provider_message_id LIMIT 1)) IS NOT TRUE AS silent
  FROM page AS p
)
SELECT j.day, count(*) FILTER (WHERE j.accepted) AS accepted, count(*) FILTER (WHERE j.silent) AS silent, (SELECT p.id FROM page AS p ORDER BY p.id DESC LIMIT 1) AS last
FROM judged AS j
GROUP BY j.day
ORDER BY j.day
