-- Removes the contents of the next messages of this age by id that have ended, and whose dead letter nobody needs; each is looked at once a duty. $1 duty text, $2 age interval, $3 at most int.
WITH duty AS (
  SELECT coalesce(position, '00000000-0000-0000-0000-000000000000') AS position
  FROM scheduler_duty WHERE name = $1 FOR UPDATE SKIP LOCKED
),
-- The smallest UUID of version 7 of that moment: its first 48 bits are milliseconds.
bound AS (
  SELECT (lpad(to_hex((extract(epoch FROM now() - $2::interval) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid AS id
),
seen AS MATERIALIZED (
  SELECT o.id, o.state NOT IN ('pending', 'sending', 'ambiguous') AND o.purged IS NULL
    AND (SELECT true FROM dead_letter AS l WHERE l.outbox_id = o.id LIMIT 1) IS NULL AS over
  FROM email_outbox AS o
  WHERE o.id > (SELECT position FROM duty) AND o.id < (SELECT id FROM bound)
  ORDER BY o.id
  LIMIT $3
),
moved AS (
  UPDATE scheduler_duty SET position = (SELECT id FROM seen ORDER BY id DESC LIMIT 1)
  WHERE name = $1 AND EXISTS (SELECT FROM seen)
),
ended AS MATERIALIZED (
  SELECT o.id
  FROM email_outbox AS o
  WHERE o.id = ANY (ARRAY(SELECT s.id FROM seen AS s WHERE s.over))
    AND o.state NOT IN ('pending', 'sending', 'ambiguous') AND o.purged IS NULL
  ORDER BY o.id
  FOR NO KEY UPDATE SKIP LOCKED
),
emptied AS (
  UPDATE email_outbox AS o
  SET subject = NULL, text = NULL, html = NULL, variables = NULL, headers = NULL, attachments = NULL, tags = NULL,
    purged = clock_timestamp(), changed = clock_timestamp()
  WHERE o.id = ANY (ARRAY(SELECT id FROM ended))
  RETURNING o.id
)
SELECT (SELECT count(*) FROM seen)::int AS seen, (SELECT count(*) FROM emptied)::int AS removed;
