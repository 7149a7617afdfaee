-- Accepts requests of the accept API, each as accept_emails says, all in one transaction; one row a request, in their order.
-- $1 tenants text[], $2 of test keys bool[], $3 Idempotency-Keys text[] (null: none), $4 digests of the bodies bytea[], $5 e-mails of each jsonb[]
SELECT accept_emails(r.tenant, r.test, r.key, r.digest, r.emails) AS answer
FROM unnest($1::text[], $2::bool[], $3::text[], $4::bytea[], $5::jsonb[]) AS r (tenant, test, key, digest, emails);
