-- Messages of a tenant, newest first, of those looked at; the last row has last_id alone: where the next page begins, null if none is left.
-- $1 tenant text, $2 before this id uuid, $3 state text or null, $4 lane text or null, $5 recipient key text or null, $6 so many rows int, $7 look at so many at most int.
WITH seen AS MATERIALIZED (
  SELECT o.id, o.lane, o.state, o.reason, o.recipient, o.recipient_key, o.sender, o.send_after, o.created, o.changed
  FROM email_outbox AS o WHERE o.tenant = $1 AND o.id < $2
  ORDER BY o.id DESC LIMIT $7
),
found AS MATERIALIZED (
  SELECT s.* FROM seen AS s
  WHERE ($3::text IS NULL OR s.state = $3) AND ($4::text IS NULL OR s.lane = $4) AND ($5::text IS NULL OR s.recipient_key = $5)
  ORDER BY s.id DESC LIMIT $6
)
SELECT f.id, f.lane, f.state, f.reason, f.recipient, f.sender, f.send_after, f.created, f.changed, NULL::uuid AS last_id FROM found AS f
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, CASE
  WHEN (SELECT count(*) FROM found) = $6 THEN (SELECT f.id FROM found AS f ORDER BY f.id LIMIT 1)
  WHEN (SELECT count(*) FROM seen) = $7 THEN (SELECT s.id FROM seen AS s ORDER BY s.id LIMIT 1) END
ORDER BY id DESC NULLS LAST;
