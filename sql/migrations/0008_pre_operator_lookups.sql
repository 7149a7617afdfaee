-- 0008, before the code: how a message is found by its recipient, and what was done about it by hand.

-- Serves find_messages and erase_emails: the messages to one recipient, newest first.
CREATE INDEX email_outbox_recipient ON email_outbox (recipient_key, id);
-- Serves the same for those who got copies, which are few.
CREATE INDEX email_outbox_copies ON email_outbox USING gin ((cc_keys || bcc_keys)) WHERE cc_keys IS NOT NULL OR bcc_keys IS NOT NULL;

-- Serves trace_email.
CREATE INDEX audit_log_outbox ON audit_log ((detail ->> 'outbox_id')) WHERE detail ->> 'outbox_id' IS NOT NULL;
