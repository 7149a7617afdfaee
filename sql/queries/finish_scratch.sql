-- Gives the live tables their names back and prepares the comparison.
ALTER TABLE pg_temp.email_event RENAME TO rebuilt_event;
ALTER TABLE pg_temp.recipient_outcome RENAME TO rebuilt_outcome;
ALTER TABLE pg_temp.recipient_state RENAME TO rebuilt_state;
ALTER TABLE pg_temp.suppression RENAME TO rebuilt_suppression;
CREATE TEMPORARY TABLE rebuilt_meanwhile (recipient_key text PRIMARY KEY);
ANALYZE rebuilt_event, rebuilt_outcome, rebuilt_state, rebuilt_suppression;
