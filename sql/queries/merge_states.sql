-- Adds to the recipients' locked rows: the latest delivery, the earliest hard bounce and complaint. $1 tenant text[], $2 recipient key text[], $3 last delivery, $4 hard bounce, $5 complaint timestamptz[].
UPDATE recipient_state AS s SET
  last_delivery = greatest(s.last_delivery, n.last_delivery),
  hard_bounce = least(s.hard_bounce, n.hard_bounce),
  complaint = least(s.complaint, n.complaint)
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[])
  AS n (tenant, recipient_key, last_delivery, hard_bounce, complaint)
WHERE s.tenant = n.tenant AND s.recipient_key = n.recipient_key
  AND (s.last_delivery, s.hard_bounce, s.complaint) IS DISTINCT FROM (greatest(s.last_delivery, n.last_delivery),
    least(s.hard_bounce, n.hard_bounce), least(s.complaint, n.complaint));
