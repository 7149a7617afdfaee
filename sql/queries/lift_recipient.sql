-- Lifts suppressions of one recipient, which is logged; returns those that are gone. $1 recipient key, $2 tenant, $3 lane, $4 reason, $5 by whom, $6 why, $7 address text or null.
SELECT recipient_key, tenant, lane, reason, evidence_id, evidence_at
FROM lift_suppressions(ARRAY[$1::text], ARRAY[$2::text], ARRAY[$3::text], ARRAY[$4::text], $5::text, $6::text, ARRAY[$7::text]);
