-- How many events were kept without a message since then. $1 received after timestamptz.
SELECT count(*) FROM email_event WHERE outbox_id IS NULL AND received > $1;
