-- Lifts suppressions, which is logged; returns those that are gone. $1 recipient key, $2 tenant, $3 lane, $4 reason text[], $5 by whom, $6 why text, $7 rule version int, $8 up to timestamptz[].
SELECT * FROM lift_suppressions($1::text[], $2::text[], $3::text[], $4::text[], $5::text, $6::text, rules => $7::int, up_to => $8::timestamptz[]);
