-- The first answer under an Idempotency-Key. $1 tenant text, $2 of test keys bool, $3 key text.
SELECT digest, answer FROM idempotency_key WHERE tenant = $1 AND test = $2 AND key = $3 AND answer IS NOT NULL;
