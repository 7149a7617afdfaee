-- What the harness adds to the database under test: every change of state of the outbox and every suppression, with the
-- transaction that made it. A claim keeps its snapshot, so that what it could see is known exactly: the function runs in the
-- WHEN of a trigger, whose arguments are evaluated under the snapshot of the statement itself.
CREATE SCHEMA crash_audit;
CREATE TABLE crash_audit.change (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  by_whom text NOT NULL DEFAULT current_setting('application_name'),
  outbox_id uuid NOT NULL,
  was text NOT NULL,
  state text NOT NULL,
  token uuid,
  next_token uuid,
  reason text,
  snapshot pg_snapshot
);
CREATE TABLE crash_audit.suppression (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  made boolean NOT NULL,
  recipient_key text NOT NULL,
  tenant text NOT NULL,
  lane text NOT NULL,
  reason text NOT NULL
);
CREATE FUNCTION crash_audit.note(outbox_id uuid, was text, state text, token uuid, next_token uuid, reason text, snapshot pg_snapshot)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO crash_audit.change (outbox_id, was, state, token, next_token, reason, snapshot)
  VALUES (outbox_id, was, state, token, next_token, reason, CASE WHEN state = 'sending' THEN snapshot END);
  RETURN false;
END
$$;
CREATE FUNCTION crash_audit.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER crash_audit AFTER UPDATE OF state ON email_outbox FOR EACH ROW
WHEN (crash_audit.note(OLD.id, OLD.state, NEW.state, OLD.attempt_id, NEW.attempt_id, NEW.reason, pg_current_snapshot()))
EXECUTE FUNCTION crash_audit.nothing();
CREATE FUNCTION crash_audit.note_suppression() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO crash_audit.suppression (made, recipient_key, tenant, lane, reason) VALUES (true, NEW.recipient_key, NEW.tenant, NEW.lane, NEW.reason);
  ELSE
    INSERT INTO crash_audit.suppression (made, recipient_key, tenant, lane, reason) VALUES (false, OLD.recipient_key, OLD.tenant, OLD.lane, OLD.reason);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER crash_audit AFTER INSERT OR DELETE ON suppression FOR EACH ROW EXECUTE FUNCTION crash_audit.note_suppression();
