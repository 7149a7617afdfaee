-- Gives a message of a tenant another time, which never waits. $1 tenant text, $2 outbox id uuid, $3 by whom text, $4 time timestamptz.
WITH done AS MATERIALIZED (
  SELECT o.id, o.recipient_key, reschedule_email(o.id, $4) AS outcome FROM email_outbox AS o WHERE o.id = $2 AND o.tenant = $1
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  SELECT $3, 'email.rescheduled', 'asked for by its tenant', d.recipient_key, jsonb_build_object('outbox_id', d.id, 'send_after', utc_text($4))
  FROM done AS d WHERE d.outcome = 'rescheduled'
)
SELECT d.outcome FROM done AS d;
