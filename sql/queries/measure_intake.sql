-- What the intake is known to have met in a span of time: events that belong to no message (at most 1,000 counted), and the last trouble. $1 from timestamptz, $2 to timestamptz.
SELECT
  (SELECT count(*) FROM (SELECT FROM email_event AS e WHERE e.outbox_id IS NULL AND e.received >= $1 AND e.received < $2 LIMIT 1000) AS u) AS unmatched,
  (SELECT w.trouble_kind FROM intake_watch AS w WHERE w.trouble >= $1 AND w.trouble < $2 ORDER BY w.trouble DESC LIMIT 1) AS trouble
