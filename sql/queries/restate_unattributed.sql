-- Sets the locked rows of no known tenant to exactly this. $1 recipient key text[], $2 last delivery, $3 hard bounce, $4 complaint timestamptz[].
UPDATE recipient_state AS s SET last_delivery = n.last_delivery, hard_bounce = n.hard_bounce, complaint = n.complaint
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[]) AS n (recipient_key, last_delivery, hard_bounce, complaint)
WHERE s.tenant = '*' AND s.recipient_key = n.recipient_key
  AND (s.last_delivery, s.hard_bounce, s.complaint) IS DISTINCT FROM (n.last_delivery, n.hard_bounce, n.complaint);
