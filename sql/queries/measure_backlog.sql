-- What waits now. Counts of the small tables; of what is due at most 100,000. $1 time between heartbeats interval.
SELECT
  (SELECT count(*) FROM (SELECT FROM email_due WHERE due <= now() LIMIT 100000) AS d) AS due,
  (SELECT count(*) FROM email_lease) AS leases,
  (SELECT count(*) FROM email_unsettled AS u JOIN email_outbox AS o ON o.id = u.outbox_id WHERE o.state = 'ambiguous') AS ambiguous,
  (SELECT count(*) FROM email_unsettled WHERE held IS NOT NULL) AS held,
  (SELECT count(*) FROM dead_letter) AS dead_letters,
  (SELECT extract(epoch FROM clock_timestamp() - (next_at - $1::interval))::float8 FROM scheduler_duty WHERE name = 'heartbeat') AS heartbeat_age;
