-- Takes down that somebody looks at the addresses of a message. $1 by whom text, $2 why text, $3 outbox id uuid.
INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
SELECT $1, 'address.shown', $2, (SELECT o.recipient_key FROM email_outbox AS o WHERE o.id = $3), jsonb_build_object('outbox_id', $3::uuid)
