-- Locks the suppressions of these recipients, in the order of their keys; returns the lifts that concern them. $1 recipient key text[].
SELECT recipient_key, tenant, lane, reason, at FROM lock_suppressions($1::text[]);
