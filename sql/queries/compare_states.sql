-- States of recipients that are not as they were rebuilt; a row that says nothing is none. since: the youngest time in which both differ.
WITH live AS (
  SELECT tenant, recipient_key, last_delivery, hard_bounce, complaint, soft_bounce_streak, soft_bounces_since FROM recipient_state
  WHERE num_nonnulls(last_delivery, hard_bounce, complaint, soft_bounces_since) > 0
),
rebuilt AS (
  SELECT tenant, recipient_key, last_delivery, hard_bounce, complaint, soft_bounce_streak, soft_bounces_since FROM rebuilt_state
  WHERE num_nonnulls(last_delivery, hard_bounce, complaint, soft_bounces_since) > 0
)
SELECT CASE WHEN l.tenant IS NULL THEN 'missing' WHEN r.tenant IS NULL THEN 'surplus' ELSE 'different' END AS what,
  coalesce(l.recipient_key, r.recipient_key) AS recipient_key,
  greatest(
    CASE WHEN l.last_delivery IS DISTINCT FROM r.last_delivery THEN least(l.last_delivery, r.last_delivery) END,
    CASE WHEN l.hard_bounce IS DISTINCT FROM r.hard_bounce THEN least(l.hard_bounce, r.hard_bounce) END,
    CASE WHEN l.complaint IS DISTINCT FROM r.complaint THEN least(l.complaint, r.complaint) END,
    CASE WHEN (l.soft_bounce_streak, l.soft_bounces_since) IS DISTINCT FROM (r.soft_bounce_streak, r.soft_bounces_since)
      THEN least(l.soft_bounces_since, r.soft_bounces_since) END) AS since,
  coalesce(l.tenant, r.tenant) AS row
FROM live AS l
FULL JOIN rebuilt AS r ON l.tenant = r.tenant AND l.recipient_key = r.recipient_key
WHERE (l.last_delivery, l.hard_bounce, l.complaint, l.soft_bounce_streak, l.soft_bounces_since)
    IS DISTINCT FROM (r.last_delivery, r.hard_bounce, r.complaint, r.soft_bounce_streak, r.soft_bounces_since)
  AND NOT EXISTS (SELECT FROM rebuilt_meanwhile AS m WHERE m.recipient_key = coalesce(l.recipient_key, r.recipient_key));
