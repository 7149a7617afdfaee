-- Sets the streaks of the locked rows to exactly this. $1 tenant text[], $2 recipient key text[], $3 soft bounce streak int[], $4 since timestamptz[].
UPDATE recipient_state AS s SET soft_bounce_streak = n.streak, soft_bounces_since = n.since
FROM unnest($1::text[], $2::text[], $3::int[], $4::timestamptz[]) AS n (tenant, recipient_key, streak, since)
WHERE s.tenant = n.tenant AND s.recipient_key = n.recipient_key
  AND (s.soft_bounce_streak, s.soft_bounces_since) IS DISTINCT FROM (n.streak, n.since);
