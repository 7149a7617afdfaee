-- Of the next calls by id those that SES took and of whose messages no event is known, in the order of their ids; the last row, without a message, tells how far was looked. $1 after attempt id uuid, $2 before attempt id uuid, $3 at most int.
WITH page AS MATERIALIZED (
  SELECT a.id, a.outbox_id, a.finished, a.provider_message_id, a.outcome FROM email_attempt AS a WHERE a.id > $1 AND a.id < $2 ORDER BY a.id LIMIT $3
),
silent AS (
  SELECT p.id AS attempt_id, p.outbox_id, p.finished, p.provider_message_id, (SELECT o.tenant FROM email_outbox AS o WHERE o.id = p.outbox_id) AS tenant
  FROM page AS p
  WHERE p.outcome = 'accepted' AND (
    (SELECT true FROM email_event AS e WHERE e.outbox_id = p.outbox_id LIMIT 1)
    OR (SELECT true FROM email_event AS e WHERE e.provider_message_id = p.provider_message_id LIMIT 1)) IS NOT TRUE
)
(SELECT s.* FROM silent AS s ORDER BY s.attempt_id)
UNION ALL
(SELECT p.id, NULL, NULL, NULL, NULL FROM page AS p ORDER BY p.id DESC LIMIT 1)
