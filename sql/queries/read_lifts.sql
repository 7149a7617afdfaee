-- The lifts that concern these recipients. $1 recipient key text[].
SELECT recipient_key, tenant, lane, reason, at FROM suppression_log WHERE recipient_key = '*' OR recipient_key = ANY ($1::text[]);
