-- Sets the locked rows to exactly this. $1 tenant text[], $2 recipient key text[], $3 last delivery, $4 hard bounce, $5 complaint timestamptz[], $6 soft bounce streak int[], $7 soft bounces since timestamptz[].
UPDATE recipient_state AS s SET last_delivery = n.last_delivery, hard_bounce = n.hard_bounce, complaint = n.complaint,
  soft_bounce_streak = n.soft_bounce_streak, soft_bounces_since = n.soft_bounces_since
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::int[], $7::timestamptz[])
  AS n (tenant, recipient_key, last_delivery, hard_bounce, complaint, soft_bounce_streak, soft_bounces_since)
WHERE s.tenant = n.tenant AND s.recipient_key = n.recipient_key
  AND (s.last_delivery, s.hard_bounce, s.complaint, s.soft_bounce_streak, s.soft_bounces_since)
    IS DISTINCT FROM (n.last_delivery, n.hard_bounce, n.complaint, n.soft_bounce_streak, n.soft_bounces_since);
