-- The rebuilt states of these recipients. $1 recipient key text[].
SELECT tenant, recipient_key, last_delivery, hard_bounce, complaint, soft_bounce_streak, soft_bounces_since
FROM rebuilt_state WHERE recipient_key = ANY ($1::text[]) AND num_nonnulls(last_delivery, hard_bounce, complaint, soft_bounces_since) > 0;
