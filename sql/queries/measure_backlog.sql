-- What waits now, of each kind at most 100,000; the state of the outbox rows is looked up by single ids. $1 time between heartbeats interval.
SELECT
  (SELECT count(*) FROM (SELECT FROM email_due WHERE due <= now() LIMIT 100000) AS d) AS due,
  (SELECT count(*) FROM (SELECT FROM email_lease LIMIT 100000) AS l) AS leases,
  (SELECT count(*)
   FROM (SELECT u.outbox_id FROM email_unsettled AS u WHERE u.held IS NULL AND u.decided IS NULL LIMIT 100000) AS u
   WHERE (SELECT o.state FROM email_outbox AS o WHERE o.id = u.outbox_id) = 'ambiguous') AS ambiguous,
  (SELECT count(*) FROM (SELECT FROM email_unsettled WHERE held IS NOT NULL AND decided IS NULL LIMIT 100000) AS u) AS held,
  (SELECT count(*) FROM (SELECT FROM dead_letter LIMIT 100000) AS l) AS dead_letters,
  (SELECT count(*) FROM (SELECT FROM email_duplicate WHERE proven IS NULL LIMIT 100000) AS d) AS possible_duplicates,
  (SELECT count(*) FROM (SELECT FROM email_duplicate WHERE proven IS NOT NULL LIMIT 100000) AS d) AS proven_duplicates,
  (SELECT extract(epoch FROM clock_timestamp() - (next_at - $1::interval))::float8 FROM scheduler_duty WHERE name = 'heartbeat') AS heartbeat_age;
