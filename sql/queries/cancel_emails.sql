-- Cancels messages, which never waits, and says of each what became of it. $1 outbox ids uuid[] (each once), $2 by whom text, $3 why text.
WITH done AS MATERIALIZED (
  SELECT a.id, (SELECT o.recipient_key FROM email_outbox AS o WHERE o.id = a.id) AS recipient_key, cancel_email(a.id, $3) AS outcome
  FROM (SELECT id FROM unnest($1::uuid[]) AS n (id) ORDER BY id) AS a
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  SELECT $2, 'email.cancelled', $3, d.recipient_key, jsonb_build_object('outbox_id', d.id) FROM done AS d WHERE d.outcome = 'cancelled'
)
SELECT d.id AS outbox_id, d.outcome FROM done AS d ORDER BY d.id;
