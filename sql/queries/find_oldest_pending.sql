-- The oldest row of the lane that is pending and not scheduled for later, among the next ones from this id on; without one the last id that was looked at. $1 lane text, $2 from id uuid, $3 at most int.
WITH seen AS (
  SELECT o.id, o.state, o.lane, o.created, o.send_after FROM email_outbox AS o WHERE o.id >= $2 ORDER BY o.id LIMIT $3
)
(SELECT s.id, extract(epoch FROM clock_timestamp() - coalesce(s.send_after, s.created))::float8 AS age
 FROM seen AS s
 WHERE s.state = 'pending' AND s.lane = $1 AND (s.send_after IS NULL OR s.send_after <= now())
 ORDER BY s.id LIMIT 1)
UNION ALL
(SELECT o.id, NULL FROM (SELECT o.id FROM email_outbox AS o WHERE o.id >= $2 ORDER BY o.id LIMIT $3) AS o ORDER BY o.id DESC LIMIT 1)
LIMIT 1;
