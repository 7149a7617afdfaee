-- What the small tables say of what waits: wake-ups whose time has come, by lane, of the oldest 10,000; the oldest call of unknown outcome (of 1,000 open ones) and dead letter; ages in seconds. No parameters.
WITH overdue AS MATERIALIZED (
  SELECT d.lane, d.due FROM email_due AS d WHERE d.due <= now() ORDER BY d.due LIMIT 10000
)
SELECT
  (SELECT coalesce(json_object_agg(l.lane, json_build_array(l.rows, l.age)), '{}')::text FROM (
    SELECT o.lane, count(*) AS rows, extract(epoch FROM clock_timestamp() - min(o.due))::float8 AS age FROM overdue AS o GROUP BY o.lane) AS l) AS overdue,
  (SELECT extract(epoch FROM clock_timestamp() - min(u.since))::float8
   FROM (SELECT s.since, s.outbox_id FROM email_unsettled AS s WHERE s.held IS NULL AND s.decided IS NULL ORDER BY s.since LIMIT 1000) AS u
   WHERE (SELECT o.state FROM email_outbox AS o WHERE o.id = u.outbox_id) = 'ambiguous') AS oldest_ambiguous,
  (SELECT extract(epoch FROM clock_timestamp() - l.created)::float8 FROM dead_letter AS l ORDER BY l.id LIMIT 1) AS oldest_dead_letter,
  (SELECT count(*) FROM (SELECT FROM relay_refused LIMIT 100000) AS r) AS refused_by_relay
