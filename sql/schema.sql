-- The whole schema of mailstreams as it is today. sql/migrations/ leads here; a test proves the two equal.
-- Run by `mailstreams migrate`, with the search path set to the target schema.

-- Identifiers and addresses ------------------------------------------------------------------------------------

CREATE FUNCTION uuid_v7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
  SELECT encode(
    set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6),
      52, 1), 53, 1),
    'hex')::uuid
$$;
COMMENT ON FUNCTION uuid_v7() IS 'A UUID version 7 (RFC 9562): 48 bits of milliseconds, then random bits.';

CREATE FUNCTION is_uuid_v7(id uuid) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT get_byte(uuid_send(id), 6) >> 4 = 7 $$;

-- Not STRICT, though null for null: only so is it inlined.
CREATE FUNCTION is_mail_address(address text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT length(address) <= 320
    AND address ~ '^[A-Za-z0-9!#$%&''*+/=?^_`{|}~.-]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?[.])+[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$'
$$;
COMMENT ON FUNCTION is_mail_address(text) IS 'One plain address that SES can take: ASCII local part, dotted ASCII domain (IDN as xn--), no display name.';

CREATE FUNCTION are_mail_addresses(addresses text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT coalesce(array_ndims(addresses), 1) = 1 AND coalesce(bool_and(coalesce(is_mail_address(a), false)), true)
  FROM unnest(addresses) AS a
$$;

CREATE FUNCTION normalise_address(address text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT lower(btrim(address, E' \t\r\n') COLLATE "C") $$;
COMMENT ON FUNCTION normalise_address(text) IS 'Trimmed, ASCII letters lower-cased, nothing else folded. The same as streams.domain.addresses.normalise.';

CREATE FUNCTION are_mail_headers(headers jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT CASE WHEN jsonb_typeof(headers) <> 'object' THEN false ELSE (
    SELECT count(*) <= 15 AND coalesce(bool_and(
      jsonb_typeof(value) = 'string'
      AND key ~ '^[!-9;-~]{1,126}$'
      -- What SES makes of the row's other columns, or reads as an order: a header of that name would be a second recipient or sender.
      AND lower(key) !~ '^(to|cc|bcc|from|sender|subject|reply-to|return-path|date|message-id|mime-version|content-(type|transfer-encoding|disposition|id|description|length)|resent-.*|dkim-signature|x-ses-.*)$'
      AND value #>> '{}' ~ '^[ -~]+$' AND length(value #>> '{}') <= 870), true)
    FROM jsonb_each(headers)) END
$$;
COMMENT ON FUNCTION are_mail_headers(jsonb) IS 'At most 15 headers as SES takes them: names of visible ASCII without a colon that no other column decides, values of 1 to 870 printable ASCII characters, so no line break.';

CREATE FUNCTION are_mail_tags(tags jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT CASE WHEN jsonb_typeof(tags) <> 'object' THEN false ELSE (
    SELECT count(*) <= 5 AND coalesce(bool_and(
      jsonb_typeof(value) = 'string'
      AND key ~ '^(ses:)?[A-Za-z0-9_-]+$' AND length(key) <= 256
      AND key NOT IN ('attempt', 'outbox', 'tenant', 'traceparent')
      AND value #>> '{}' ~ '^[A-Za-z0-9_-]+$' AND length(value #>> '{}') <= 256), true)
    FROM jsonb_each(tags)) END
$$;
COMMENT ON FUNCTION are_mail_tags(jsonb) IS 'At most five e-mail tags as SES takes them; attempt, outbox, tenant and traceparent are ours.';

CREATE FUNCTION are_attachments(attachments jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT CASE WHEN jsonb_typeof(attachments) <> 'array' OR jsonb_array_length(attachments) > 20 THEN false ELSE (
    SELECT coalesce(bool_and(CASE WHEN jsonb_typeof(a) <> 'object' THEN false ELSE coalesce(
      a - ARRAY['url', 'name', 'type', 'sha256', 'size', 'content_id'] = '{}'
      AND a ->> 'url' ~ '^(https|s3|file)://[!-~]+$' AND length(a ->> 'url') <= 2000
      AND a ->> 'name' ~ '^[^[:cntrl:]/\\]+$' AND length(a ->> 'name') <= 255
      AND a ->> 'sha256' ~ '^[0-9a-f]{64}$'
      AND jsonb_typeof(a -> 'size') = 'number' AND a ->> 'size' ~ '^[1-9][0-9]{0,7}$', false) END), true)
    FROM jsonb_array_elements(attachments) AS a) END
$$;
COMMENT ON FUNCTION are_attachments(jsonb) IS 'At most 20 references to files: url (https, s3 or file), name, sha256 in hexadecimal, size in bytes; optional type and content_id.';

-- The recipient key ----------------------------------------------------------------------------------------------

-- One row: the salt as the two pads of HMAC-SHA-256, so that no extension is needed. Only the owner reads it.
CREATE TABLE recipient_salt (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  inner_pad bytea NOT NULL CHECK (length(inner_pad) = 64),
  outer_pad bytea NOT NULL CHECK (length(outer_pad) = 64),
  fingerprint text NOT NULL,
  created timestamptz NOT NULL DEFAULT clock_timestamp()
);
REVOKE ALL ON recipient_salt FROM PUBLIC;

CREATE FUNCTION recipient_salt_fingerprint() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
AS $$ SELECT fingerprint FROM recipient_salt $$;

CREATE FUNCTION recipient_key(address text) RETURNS text
LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  salt recipient_salt;
BEGIN
  SELECT * INTO salt FROM recipient_salt;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the salt of the recipient keys is not set'
      USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run "mailstreams migrate" with MAILSTREAMS_RECIPIENT_SALT set.';
  END IF;
  RETURN left(encode(sha256(salt.outer_pad || sha256(salt.inner_pad || convert_to(normalise_address(address), 'UTF8'))), 'hex'), 32);
END
$$;
COMMENT ON FUNCTION recipient_key(text) IS '32 hex digits: HMAC-SHA-256 of the normalised address under the deployment''s salt, cut to 128 bits.';

-- The feed: the one way out of the database ----------------------------------------------------------------------

CREATE SEQUENCE outbox_feed_seq AS bigint;

-- Debezium's outbox shape; insert-only; no index, since the WAL is its only reader. Day partitions are made ahead by
-- the scheduler; the default partition only exists so that an insert never fails.
CREATE TABLE outbox_feed (
  id uuid NOT NULL DEFAULT uuid_v7(),
  aggregatetype text NOT NULL,
  aggregateid text NOT NULL,
  type text NOT NULL,
  payload jsonb,
  tracingspancontext text,
  ts timestamp NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC'),
  seq bigint NOT NULL DEFAULT nextval('outbox_feed_seq'),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id()
) PARTITION BY RANGE (ts);
ALTER SEQUENCE outbox_feed_seq OWNED BY outbox_feed.seq;
CREATE TABLE outbox_feed_default PARTITION OF outbox_feed DEFAULT;

CREATE PUBLICATION mailstreams_feed FOR TABLE outbox_feed WITH (publish = 'insert', publish_via_partition_root = true);

CREATE FUNCTION make_feed_partitions(days_ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  day date;
  made integer := 0;
BEGIN
  PERFORM set_config('lock_timeout', '100ms', true);
  -- Today has rows in the default partition if nobody made its partition in time: the next day is the first to be made.
  FOR day IN SELECT d::date FROM generate_series((clock_timestamp() AT TIME ZONE 'UTC')::date, (clock_timestamp() AT TIME ZONE 'UTC')::date + days_ahead, '1 day') AS d LOOP
    CONTINUE WHEN to_regclass(format('outbox_feed_%s', to_char(day, 'YYYYMMDD'))) IS NOT NULL;
    CONTINUE WHEN EXISTS (SELECT FROM outbox_feed_default WHERE ts >= day AND ts < day + 1);
    EXECUTE format('CREATE TABLE outbox_feed_%s PARTITION OF outbox_feed FOR VALUES FROM (%L) TO (%L)', to_char(day, 'YYYYMMDD'), day, day + 1);
    made := made + 1;
  END LOOP;
  RETURN made;
END
$$;
COMMENT ON FUNCTION make_feed_partitions(integer) IS 'Makes the day partitions of the feed from today on that are missing; gives up with lock_not_available rather than make an insert wait.';

-- The intent -----------------------------------------------------------------------------------------------------

-- No index may mention state, attempts, attempt_id or reason, not even in a predicate: every state change is then a
-- heap-only update. By the fillfactor each row finds room for the versions of a claim and of an outcome on its page, also while
-- an old snapshot (a report, ANALYZE) keeps all three.
CREATE TABLE email_outbox (
  id uuid PRIMARY KEY DEFAULT uuid_v7(),
  tenant text NOT NULL DEFAULT 'default',
  lane text NOT NULL DEFAULT 'transactional',
  dedup_key text,
  recipient text NOT NULL,
  recipient_key text NOT NULL,
  cc text[],
  cc_keys text[],
  bcc text[],
  bcc_keys text[],
  sender text NOT NULL,
  sender_name text,
  reply_to text,
  subject text,
  text text,
  html text,
  template text,
  template_version integer,
  variables jsonb,
  headers jsonb,
  attachments jsonb,
  tags jsonb,
  send_after timestamptz,
  expires_at timestamptz,
  on_ambiguous text NOT NULL DEFAULT 'hold' CONSTRAINT on_ambiguous_is_hold_resend_or_resend_when_silent CHECK (on_ambiguous IN ('hold', 'resend', 'resend-when-silent')),
  state text NOT NULL DEFAULT 'pending' CONSTRAINT state_is_known CHECK (state IN ('pending', 'sending', 'submitted', 'failed', 'ambiguous', 'suppressed', 'expired', 'cancelled')),
  attempt_id uuid,
  attempts smallint NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  redrives smallint NOT NULL DEFAULT 0,
  reason text,
  traceparent text,
  created timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- When its contents were removed.
  purged timestamptz,
  CONSTRAINT attempt_id_only_while_sending CHECK ((state = 'sending') = (attempt_id IS NOT NULL))
) WITH (fillfactor = 33, toast_tuple_target = 256, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.5);
ALTER TABLE email_outbox
  ALTER COLUMN text SET COMPRESSION lz4,
  ALTER COLUMN html SET COMPRESSION lz4,
  ALTER COLUMN variables SET COMPRESSION lz4,
  ALTER COLUMN headers SET COMPRESSION lz4,
  ALTER COLUMN attachments SET COMPRESSION lz4;
-- Serves enqueue_email: a second row of the same tenant and dedup key is not made.
CREATE UNIQUE INDEX email_outbox_dedup ON email_outbox (tenant, dedup_key) WHERE dedup_key IS NOT NULL;
-- Serves find_messages and erase_emails: the messages to one recipient, newest first.
CREATE INDEX email_outbox_recipient ON email_outbox (recipient_key, id);
-- Serves the same for those who got copies, which are few.
CREATE INDEX email_outbox_copies ON email_outbox USING gin ((cc_keys || bcc_keys)) WHERE cc_keys IS NOT NULL OR bcc_keys IS NOT NULL;
-- Serves list_api_emails: the messages of one tenant, newest first.
CREATE INDEX email_outbox_tenant ON email_outbox (tenant, id);

CREATE FUNCTION email_outbox_complete() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
  IF NEW.state <> 'pending' OR NEW.attempts <> 0 OR NEW.redrives <> 0 OR NEW.attempt_id IS NOT NULL OR NEW.reason IS NOT NULL THEN
    RAISE EXCEPTION 'state, attempts, redrives, attempt_id and reason are set by mailstreams'
      USING ERRCODE = 'check_violation', HINT = 'Leave these columns out of the insert.';
  END IF;
  NEW.created := clock_timestamp();
  NEW.changed := NEW.created;
  NEW.purged := NULL;
  NEW.recipient := btrim(NEW.recipient, E' \t');
  IF NEW.recipient ~ '[^[:ascii:]]' THEN
    RAISE EXCEPTION 'the recipient has a character outside ASCII'
      USING ERRCODE = 'check_violation', HINT = 'Write an internationalised domain in its xn-- form; SES takes ASCII only before the @.';
  END IF;
  NEW.recipient_key := recipient_key(NEW.recipient);
  IF NEW.cc IS NOT NULL THEN
    NEW.cc_keys := ARRAY(SELECT recipient_key(a) FROM unnest(NEW.cc) WITH ORDINALITY AS c (a, n) ORDER BY n);
  END IF;
  IF NEW.bcc IS NOT NULL THEN
    NEW.bcc_keys := ARRAY(SELECT recipient_key(a) FROM unnest(NEW.bcc) WITH ORDINALITY AS b (a, n) ORDER BY n);
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER complete BEFORE INSERT ON email_outbox FOR EACH ROW EXECUTE FUNCTION email_outbox_complete();

-- What CHECK constraints would say of the content: those are evaluated by every change of state, and cost more than the change.
CREATE FUNCTION email_outbox_check_content() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
  broken CONSTANT text := CASE
    WHEN NOT is_uuid_v7(NEW.id) THEN 'id_is_a_uuid_of_version_7'
    WHEN NOT NEW.tenant ~ '^[A-Za-z0-9_-]{1,64}$' THEN 'tenant_has_1_to_64_of_letters_digits_underscore_hyphen'
    WHEN NOT NEW.lane IN ('transactional', 'bulk') THEN 'lane_is_transactional_or_bulk'
    WHEN NOT length(NEW.dedup_key) BETWEEN 1 AND 200 THEN 'dedup_key_has_1_to_200_characters'
    WHEN NOT is_mail_address(NEW.recipient) THEN 'recipient_is_one_plain_mail_address'
    WHEN NOT are_mail_addresses(NEW.cc) THEN 'cc_has_plain_mail_addresses_only'
    WHEN NOT are_mail_addresses(NEW.bcc) THEN 'bcc_has_plain_mail_addresses_only'
    WHEN 1 + coalesce(cardinality(NEW.cc), 0) + coalesce(cardinality(NEW.bcc), 0) > 50 THEN 'at_most_50_recipients'
    WHEN NOT is_mail_address(NEW.sender) THEN 'sender_is_one_plain_mail_address'
    WHEN NOT (length(NEW.sender_name) BETWEEN 1 AND 200 AND NEW.sender_name !~ '[[:cntrl:]]') THEN 'sender_name_is_one_line_of_1_to_200_characters'
    WHEN NOT is_mail_address(NEW.reply_to) THEN 'reply_to_is_one_plain_mail_address'
    WHEN NOT (length(NEW.subject) BETWEEN 1 AND 2000 AND NEW.subject !~ '[[:cntrl:]]') THEN 'subject_is_one_line_of_1_to_2000_characters'
    WHEN NOT coalesce(
      (NEW.template IS NULL AND NEW.template_version IS NULL AND NEW.variables IS NULL AND NEW.subject IS NOT NULL AND (NEW.text IS NOT NULL OR NEW.html IS NOT NULL))
      OR (NEW.template IS NOT NULL AND NEW.subject IS NULL AND NEW.text IS NULL AND NEW.html IS NULL), false) THEN 'body_or_template_and_not_both'
    WHEN coalesce(octet_length(NEW.text), 0) + coalesce(octet_length(NEW.html), 0) > 30000000 THEN 'body_is_within_the_ses_limit_of_40_mb_after_base64'
    WHEN NOT NEW.template ~ '^[A-Za-z0-9_-]{1,64}$' THEN 'template_name_has_1_to_64_of_letters_digits_underscore_hyphen'
    WHEN NOT (jsonb_typeof(NEW.variables) = 'object' AND octet_length(NEW.variables::text) <= 262144) THEN 'variables_are_an_object_of_at_most_262144_bytes'
    WHEN NOT are_mail_headers(NEW.headers) THEN 'headers_are_at_most_15_one_line_ascii_values'
    WHEN NOT are_attachments(NEW.attachments) THEN 'attachments_are_at_most_20_of_url_name_sha256_size'
    WHEN NOT are_mail_tags(NEW.tags) THEN 'tags_are_at_most_5_of_letters_digits_underscore_hyphen'
    WHEN NOT (NEW.send_after >= '1970-01-01Z' AND NEW.send_after < '9999-12-31Z') THEN 'send_after_is_between_1970_and_9999'
    WHEN NOT (NEW.expires_at >= '1970-01-01Z' AND (NEW.expires_at < '9999-12-31Z' OR NEW.expires_at = 'infinity')) THEN 'expires_at_is_between_1970_and_9999_or_infinity'
    WHEN NOT NEW.expires_at > NEW.send_after THEN 'expires_after_it_is_due'
    WHEN NOT NEW.traceparent ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN 'traceparent_has_the_w3c_form'
  END;
BEGIN
  IF broken IS NOT NULL THEN
    -- Worded as PostgreSQL does, but without the row: it holds addresses and content.
    RAISE EXCEPTION 'new row for relation "%" violates check constraint "%"', TG_TABLE_NAME, broken
      USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
  END IF;
  RETURN NEW;
END
$$;
-- After "complete" in the order of names, so that it sees what will be stored.
CREATE TRIGGER content BEFORE INSERT OR UPDATE OF id, tenant, lane, dedup_key, recipient, cc, bcc, sender, sender_name, reply_to, subject, text, html,
  template, template_version, variables, headers, attachments, tags, send_after, expires_at, traceparent
ON email_outbox FOR EACH ROW WHEN (NEW.purged IS NULL) EXECUTE FUNCTION email_outbox_check_content();

-- Contents leave a message once, for good, and only when nothing can come of it any more.
CREATE FUNCTION email_outbox_purge() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  IF NEW.purged IS NULL OR NEW.state IN ('pending', 'sending', 'ambiguous')
    OR num_nonnulls(NEW.subject, NEW.text, NEW.html, NEW.variables, NEW.headers, NEW.attachments, NEW.tags) > 0 THEN
    RAISE EXCEPTION 'contents are removed for good and all together, of messages that have ended'
      USING ERRCODE = 'check_violation', HINT = 'Set purged and no content; cancel a message that is pending or ambiguous first.';
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER purging BEFORE UPDATE OF purged ON email_outbox FOR EACH ROW
WHEN (OLD.purged IS DISTINCT FROM NEW.purged) EXECUTE FUNCTION email_outbox_purge();

CREATE FUNCTION erased_address() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 'erased@erased.invalid' $$;
COMMENT ON FUNCTION erased_address() IS 'What stands in the place of an address that was erased; by RFC 2606 it is nobody''s.';

CREATE FUNCTION are_erased(before text[], after text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT cardinality(before) IS NOT DISTINCT FROM cardinality(after)
    AND NOT EXISTS (SELECT FROM unnest(before, after) AS a (b, a) WHERE (a.a IN (a.b, erased_address())) IS NOT TRUE)
$$;
COMMENT ON FUNCTION are_erased(text[], text[]) IS 'Whether the second list is the first one with some of its addresses erased.';

-- The keys belong to the addresses, the lane to the topic: none of them changes once it is told. Erasure leaves the keys, and
-- puts one address in the place of those that it takes.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
  IF (OLD.id, OLD.tenant, OLD.lane, OLD.recipient_key, OLD.cc_keys, OLD.bcc_keys)
    IS NOT DISTINCT FROM (NEW.id, NEW.tenant, NEW.lane, NEW.recipient_key, NEW.cc_keys, NEW.bcc_keys)
    AND NEW.state NOT IN ('pending', 'sending', 'ambiguous')
    AND NEW.recipient IN (OLD.recipient, erased_address())
    AND are_erased(OLD.cc, NEW.cc) AND are_erased(OLD.bcc, NEW.bcc) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'recipients, tenant, lane and the id of an outbox row do not change once it is inserted'
    USING ERRCODE = 'check_violation', HINT = 'Cancel it with cancel_email(id, reason) while it is pending, and insert another row.';
END
$$;
CREATE TRIGGER unchanging BEFORE UPDATE OF id, tenant, lane, recipient, recipient_key, cc, cc_keys, bcc, bcc_keys ON email_outbox
FOR EACH ROW WHEN (
  (OLD.id, OLD.tenant, OLD.lane, OLD.recipient, OLD.recipient_key, OLD.cc, OLD.cc_keys, OLD.bcc, OLD.bcc_keys)
  IS DISTINCT FROM
  (NEW.id, NEW.tenant, NEW.lane, NEW.recipient, NEW.recipient_key, NEW.cc, NEW.cc_keys, NEW.bcc, NEW.bcc_keys))
EXECUTE FUNCTION refuse_change();

-- The time belongs to the wake-up: both move together, and only while the scheduler has not taken it.
CREATE FUNCTION email_outbox_reschedule() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  IF OLD.state <> 'pending' OR coalesce(OLD.send_after <= clock_timestamp(), true) OR NEW.send_after IS NULL THEN
    RAISE EXCEPTION 'send_after changes only while the message is pending and scheduled, and to another time'
      USING ERRCODE = 'check_violation', HINT = 'Use reschedule_email(id, send_after), which says what is in the way.';
  END IF;
  UPDATE email_due SET due = NEW.send_after WHERE id IN (SELECT d.id FROM email_due AS d WHERE d.id = NEW.id FOR UPDATE SKIP LOCKED);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the scheduler has the message in hand' USING ERRCODE = 'lock_not_available', HINT = 'Look at it again in a moment.';
  END IF;
  NEW.changed := clock_timestamp();
  RETURN NEW;
END
$$;
CREATE TRIGGER rescheduled BEFORE UPDATE OF send_after ON email_outbox FOR EACH ROW
WHEN (OLD.send_after IS DISTINCT FROM NEW.send_after) EXECUTE FUNCTION email_outbox_reschedule();

-- The one place of the legal transitions; streams.domain.states mirrors it and a test proves the two equal.
CREATE FUNCTION email_outbox_transition() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  IF (OLD.state || '>' || NEW.state) NOT IN (
    'pending>sending', 'pending>suppressed', 'pending>expired', 'pending>cancelled', 'pending>submitted',
    'sending>submitted', 'sending>pending', 'sending>failed', 'sending>suppressed', 'sending>ambiguous',
    'ambiguous>submitted', 'ambiguous>pending', 'ambiguous>failed', 'ambiguous>cancelled',
    'failed>submitted', 'failed>pending') THEN
    RAISE EXCEPTION 'an outbox row cannot go from % to %', OLD.state, NEW.state
      USING ERRCODE = 'check_violation', HINT = 'The legal transitions stand in the function email_outbox_transition.';
  END IF;
  -- Its attempts may be counted from anew: this number tells the ends of such a row apart, see life_cycle_event.
  IF OLD.state = 'failed' AND NEW.state = 'pending' THEN
    NEW.redrives := OLD.redrives + 1;
  END IF;
  -- Cancelling is an UPDATE of anybody's; the other ends of a row are told by the statements that write them.
  IF NEW.state = 'cancelled' THEN
    INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
    VALUES ('delivery-events', NEW.recipient_key, 'cancelled', life_cycle_event(NEW, 'cancelled', NEW.reason), 'traceparent=' || NEW.traceparent);
    -- A wake-up that the scheduler is taking this moment does no harm.
    DELETE FROM email_due WHERE id IN (SELECT d.id FROM email_due AS d WHERE d.id = NEW.id FOR UPDATE SKIP LOCKED);
    UPDATE email_unsettled SET decided = clock_timestamp() WHERE outbox_id = NEW.id AND decided IS NULL;
  END IF;
  RETURN NEW;
END
$$;
-- Nearly all messages go these two ways and no other: they pay for a comparison, not for a function.
CREATE TRIGGER transition BEFORE UPDATE OF state ON email_outbox FOR EACH ROW
WHEN (OLD.state <> NEW.state
  AND NOT (OLD.state = 'pending' AND NEW.state = 'sending') AND NOT (OLD.state = 'sending' AND NEW.state = 'submitted'))
EXECUTE FUNCTION email_outbox_transition();

-- Work that waits ------------------------------------------------------------------------------------------------

CREATE TABLE email_due (
  id uuid PRIMARY KEY,
  due timestamptz NOT NULL,
  tenant text NOT NULL,
  lane text NOT NULL,
  why text NOT NULL CHECK (why IN ('scheduled', 'retry', 'paused', 'busy', 'released', 'early'))
);
-- Serves take_due.
CREATE INDEX email_due_due ON email_due (due);

-- Only finds what ran out: the token that counts is in the outbox row. By the attempt, so that a new one never meets an older row.
CREATE TABLE email_lease (
  attempt_id uuid PRIMARY KEY,
  id uuid NOT NULL,
  started timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires timestamptz NOT NULL
);
-- Serves expire_leases.
CREATE INDEX email_lease_expires ON email_lease (expires);

-- Attempts of unknown outcome, kept until evidence comes. held: a person was asked. decided: a policy or a person has acted
-- on it, or the message was cancelled; evidence counts all the same.
CREATE TABLE email_unsettled (
  attempt_id uuid PRIMARY KEY,
  outbox_id uuid NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  held timestamptz,
  decided timestamptz
);
-- Serves settle_ambiguous.
CREATE INDEX email_unsettled_outbox ON email_unsettled (outbox_id);
-- Serves hold_ambiguous and resend_ambiguous.
CREATE INDEX email_unsettled_waiting ON email_unsettled (since) WHERE held IS NULL AND decided IS NULL;

-- Messages that SES may have taken twice, and those that it has. One row an attempt: of unknown outcome when its message was
-- given back to be sent again, or proven beside another one. Gone when evidence shows that there was one call at most.
CREATE TABLE email_duplicate (
  attempt_id uuid PRIMARY KEY,
  outbox_id uuid NOT NULL,
  tenant text NOT NULL,
  why text NOT NULL CHECK (why IN ('resend', 'resend-when-silent', 'settled-by-hand', 'redriven', 'unforeseen')),
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  proven timestamptz
);
-- Serves settle_ambiguous.
CREATE INDEX email_duplicate_outbox ON email_duplicate (outbox_id);

-- How the silence of an attempt is known to be one: one row a life of a process that takes in events. It has watched since
-- then without a break up to its last report; trouble is the last time that something was refused, set aside or late.
CREATE TABLE intake_watch (
  process uuid PRIMARY KEY,
  stage text NOT NULL CHECK (stage IN ('events', 'recipients')),
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  reported timestamptz NOT NULL DEFAULT clock_timestamp(),
  trouble timestamptz,
  trouble_kind text,
  ended boolean NOT NULL DEFAULT false
);

CREATE TABLE dead_letter (
  id uuid PRIMARY KEY DEFAULT uuid_v7(),
  outbox_id uuid NOT NULL,
  tenant text NOT NULL,
  lane text NOT NULL,
  class text NOT NULL,
  reason text NOT NULL,
  attempt_id uuid,
  created timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Serves trace_email, settle_ambiguous and redrive_dead_letters.
CREATE INDEX dead_letter_outbox ON dead_letter (outbox_id);

-- What was done and what came of it --------------------------------------------------------------------------------

-- One row a call, written with its outcome. The id is the tag given to SES.
CREATE TABLE email_attempt (
  id uuid PRIMARY KEY,
  outbox_id uuid NOT NULL,
  number smallint NOT NULL,
  started timestamptz,
  finished timestamptz NOT NULL,
  outcome text NOT NULL CHECK (outcome IN ('accepted', 'retry', 'permanent', 'throttled', 'account-stop', 'misconfigured', 'unknown')),
  provider_message_id text,
  error_class text,
  code text,
  http_status smallint,
  reason text,
  left_out text[]
);
-- Serves trace_email and settle_ambiguous.
CREATE INDEX email_attempt_outbox ON email_attempt (outbox_id);
-- Serves correlate_events: a legacy notification carries the provider's id alone.
CREATE INDEX email_attempt_provider ON email_attempt (provider_message_id) WHERE provider_message_id IS NOT NULL;

-- Facts: one row per event and recipient.
CREATE TABLE email_event (
  event_id text NOT NULL,
  recipient_key text NOT NULL,
  type text NOT NULL,
  at timestamptz NOT NULL,
  tenant text,
  outbox_id uuid,
  attempt_id uuid,
  provider_message_id text,
  payload jsonb NOT NULL,
  received timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (event_id, recipient_key)
);
-- Serves trace_email and settle_ambiguous.
CREATE INDEX email_event_outbox ON email_event (outbox_id) WHERE outbox_id IS NOT NULL;
-- Serves correlate_events: an event without our tags is known by another of the same message.
CREATE INDEX email_event_provider ON email_event (provider_message_id) WHERE provider_message_id IS NOT NULL;
-- Serves find_unmatched_events.
CREATE INDEX email_event_unmatched ON email_event (received) WHERE outbox_id IS NULL;
-- Serves find_unattributed_events.
CREATE INDEX email_event_unattributed ON email_event (recipient_key) WHERE outbox_id IS NULL;
-- Serves find_evidence, find_evidence_keys, find_soft_bounces and lift_suppressions: what a recipient's suppressions can rest on.
CREATE INDEX email_event_evidence ON email_event (recipient_key, at) WHERE type IN ('bounced', 'complained', 'unsubscribed');

-- The facts of one message and recipient. Times only merge (earliest of each), columns of a bounce come from one event.
CREATE TABLE recipient_outcome (
  outbox_id uuid NOT NULL,
  recipient_key text NOT NULL,
  accepted_at timestamptz,
  delivered_at timestamptz,
  delayed_at timestamptz,
  rejected_at timestamptz,
  rendering_failed_at timestamptz,
  bounced_at timestamptz,
  bounce_event_id text,
  bounce_type text CHECK (bounce_type IN ('permanent', 'transient', 'undetermined')),
  bounce_reason text,
  bounce_diagnostic text,
  complained_at timestamptz,
  complaint_event_id text,
  complaint_type text,
  opened_at timestamptz,
  clicked_at timestamptz,
  unsubscribed_at timestamptz,
  PRIMARY KEY (outbox_id, recipient_key)
);

-- Per tenant ('*': unknown) and recipient, over all messages. The streak: messages that bounced softly since the last delivery,
-- and when the first of them did; what was lifted counts in it, though it suppresses no more.
CREATE TABLE recipient_state (
  tenant text NOT NULL,
  recipient_key text NOT NULL,
  last_delivery timestamptz,
  hard_bounce timestamptz,
  complaint timestamptz,
  soft_bounce_streak integer NOT NULL DEFAULT 0 CHECK (soft_bounce_streak >= 0),
  soft_bounces_since timestamptz,
  PRIMARY KEY (tenant, recipient_key)
);

-- Suppressions ---------------------------------------------------------------------------------------------------

-- In force is any row that has not expired. Each rule withdraws only rows of its own reason.
CREATE TABLE suppression (
  recipient_key text NOT NULL CHECK (recipient_key ~ '^[0-9a-f]{32}$'),
  tenant text NOT NULL DEFAULT '*',
  lane text NOT NULL DEFAULT '*' CHECK (lane IN ('*', 'transactional', 'bulk')),
  reason text NOT NULL CHECK (reason IN ('hard-bounce', 'complaint', 'soft-bounces', 'unsubscribed', 'provider-suppression', 'manual')),
  evidence_id text,
  evidence_at timestamptz,
  -- The complaint names several people, of whom only one complained.
  unattributed boolean NOT NULL DEFAULT false,
  rule_version integer NOT NULL DEFAULT 1,
  created timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires timestamptz,
  PRIMARY KEY (recipient_key, tenant, lane, reason)
);
-- Serves expire_suppressions.
CREATE INDEX suppression_expires ON suppression (expires) WHERE expires IS NOT NULL;

-- The lock of a recipient's set of suppressions.
CREATE TABLE suppressed_recipient (
  recipient_key text PRIMARY KEY
);

CREATE FUNCTION utc_text(at timestamptz) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$ SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- Puts each recipient's whole set of suppressions into the feed. The recipients' own rows are made or locked first, in the
-- order of their keys, then the sets are read by a statement of its own, so that it sees all that committed before the lock
-- was given, and the sequence is drawn last: the last record of a key is the table's truth.
-- Without sequential scans, since a plan made while the tables were small would take hours for a million keys.
CREATE FUNCTION announce_suppressions(keys text[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan TO off
AS $$
DECLARE
  announced integer;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'suppressions are changed in READ COMMITTED transactions only, this one is %', upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'invalid_transaction_state', HINT = 'Start the transaction with ISOLATION LEVEL READ COMMITTED.';
  END IF;
  -- A row that is there is locked and left as it is.
  INSERT INTO suppressed_recipient AS r (recipient_key)
  SELECT DISTINCT k FROM unnest(keys) AS k ORDER BY k
  ON CONFLICT (recipient_key) DO UPDATE SET recipient_key = r.recipient_key WHERE false;
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload)
  SELECT 'suppressions', r.recipient_key, 'suppressions', (
    SELECT jsonb_build_object('suppressions', jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
      'tenant', s.tenant, 'lane', s.lane, 'reason', s.reason, 'evidence_id', s.evidence_id, 'rule_version', s.rule_version,
      'created', utc_text(s.created), 'expires', utc_text(s.expires))) ORDER BY s.tenant, s.lane, s.reason))
    FROM suppression AS s
    WHERE s.recipient_key = r.recipient_key AND (s.expires IS NULL OR s.expires > clock_timestamp())
    HAVING count(*) > 0)
  FROM (SELECT DISTINCT k AS recipient_key FROM unnest(keys) AS k) AS r
  ORDER BY r.recipient_key;
  GET DIAGNOSTICS announced = ROW_COUNT;
  RETURN announced;
END
$$;

-- Only triggers call it, as its owner: whoever else could, might lock any recipient and fill the feed.
REVOKE ALL ON FUNCTION announce_suppressions(text[]) FROM PUBLIC;

CREATE FUNCTION suppression_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    PERFORM announce_suppressions(ARRAY(SELECT recipient_key FROM old_rows UNION SELECT recipient_key FROM new_rows));
  ELSE
    PERFORM announce_suppressions(ARRAY(SELECT DISTINCT recipient_key FROM changed_rows));
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER announce_insert AFTER INSERT ON suppression REFERENCING NEW TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION suppression_changed();
CREATE TRIGGER announce_update AFTER UPDATE ON suppression REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION suppression_changed();
CREATE TRIGGER announce_delete AFTER DELETE ON suppression REFERENCING OLD TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION suppression_changed();

-- TRUNCATE has no rows to tell: the topic would say for ever what the table does not.
CREATE FUNCTION refuse_truncate() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE EXCEPTION 'TRUNCATE of % cannot be announced', TG_TABLE_NAME USING ERRCODE = 'feature_not_supported', HINT = format('DELETE FROM %I', TG_TABLE_NAME);
END
$$;
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON suppression FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate();

-- Lifts are facts: evidence at or before the time of a lift never suppresses again, newer evidence does. '*' stands for every
-- recipient, tenant, lane or reason.
CREATE TABLE suppression_log (
  id uuid PRIMARY KEY DEFAULT uuid_v7(),
  recipient_key text NOT NULL CHECK (recipient_key ~ '^([*]|[0-9a-f]{32})$'),
  tenant text NOT NULL DEFAULT '*',
  lane text NOT NULL DEFAULT '*' CHECK (lane IN ('*', 'transactional', 'bulk')),
  reason text NOT NULL DEFAULT '*' CHECK (reason IN ('*', 'hard-bounce', 'complaint', 'soft-bounces', 'unsubscribed', 'provider-suppression', 'manual')),
  at timestamptz NOT NULL,
  by_whom text NOT NULL CHECK (by_whom <> ''),
  why text NOT NULL CHECK (why <> ''),
  rule_version integer
);
-- Serves lock_suppressions.
CREATE INDEX suppression_log_recipient ON suppression_log (recipient_key);

-- What has to be deleted from the account-level list of SES, since a lift here alone would not let mail through. Without an
-- address it cannot be; then a person has to. The only place outside email_outbox with addresses: erasure empties it too.
CREATE TABLE provider_unlisting (
  recipient_key text PRIMARY KEY,
  address text,
  requested timestamptz NOT NULL DEFAULT clock_timestamp(),
  due timestamptz NOT NULL DEFAULT clock_timestamp(),
  tries integer NOT NULL DEFAULT 0
);
-- Serves the duty that works it off.
CREATE INDEX provider_unlisting_due ON provider_unlisting (due) WHERE address IS NOT NULL;

-- The account-level list of SES, one row a region: the pace of all calls about it, and how far its import is. The token is
-- SES's own and stands here only between two pages.
CREATE TABLE provider_list (
  scope text PRIMARY KEY,
  next_call timestamptz NOT NULL DEFAULT '-infinity',
  asked timestamptz NOT NULL DEFAULT clock_timestamp(),
  started timestamptz,
  finished timestamptz,
  next_token text,
  pages integer NOT NULL DEFAULT 0,
  entries bigint NOT NULL DEFAULT 0,
  suppressed bigint NOT NULL DEFAULT 0,
  lifted bigint NOT NULL DEFAULT 0,
  unusable bigint NOT NULL DEFAULT 0
);

-- Who did what by hand, and why. Suppressions of reason manual name their entry as evidence.
CREATE TABLE audit_log (
  id uuid PRIMARY KEY DEFAULT uuid_v7(),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  by_whom text NOT NULL CHECK (by_whom <> ''),
  action text NOT NULL,
  why text NOT NULL CHECK (why <> ''),
  recipient_key text,
  detail jsonb
);
-- Serves trace_email.
CREATE INDEX audit_log_outbox ON audit_log ((detail ->> 'outbox_id')) WHERE detail ->> 'outbox_id' IS NOT NULL;

-- Whoever puts in or withdraws suppressions by evidence locks the recipients first, and only then looks at the lifts.
CREATE FUNCTION lock_suppressions(keys text[]) RETURNS SETOF suppression_log
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan TO off
AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'suppressions are changed in READ COMMITTED transactions only, this one is %', upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'invalid_transaction_state', HINT = 'Start the transaction with ISOLATION LEVEL READ COMMITTED.';
  END IF;
  INSERT INTO suppressed_recipient AS r (recipient_key)
  SELECT DISTINCT k FROM unnest(keys) AS k ORDER BY k
  ON CONFLICT (recipient_key) DO UPDATE SET recipient_key = r.recipient_key WHERE false;
  RETURN QUERY
  SELECT l.* FROM suppression_log AS l WHERE l.recipient_key = '*'
  UNION ALL
  SELECT l.* FROM suppression_log AS l WHERE l.recipient_key = ANY (keys);
END
$$;
COMMENT ON FUNCTION lock_suppressions(text[]) IS 'Locks the suppressions of these recipients until the transaction ends, in the order of their keys; returns the lifts that concern them.';

CREATE FUNCTION address_of(key text) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT a.address
  FROM email_event AS e
  JOIN email_outbox AS o ON o.id = e.outbox_id
  CROSS JOIN LATERAL (
    SELECT o.recipient AS address, o.recipient_key AS key
    UNION ALL SELECT * FROM unnest(o.cc, o.cc_keys)
    UNION ALL SELECT * FROM unnest(o.bcc, o.bcc_keys)) AS a
  WHERE e.recipient_key = address_of.key AND e.type IN ('bounced', 'complained', 'unsubscribed') AND a.key = address_of.key AND a.address <> erased_address()
  LIMIT 1
$$;
COMMENT ON FUNCTION address_of(text) IS 'The address of a recipient of whom there is evidence, as mail was sent to it; null if no outbox row tells.';

CREATE FUNCTION lift_suppressions(
  keys text[], tenants text[], lanes text[], reasons text[], by_whom text, why text,
  addresses text[] DEFAULT NULL, rules integer DEFAULT NULL, up_to timestamptz[] DEFAULT NULL
) RETURNS TABLE (recipient_key text, tenant text, lane text, reason text, evidence_id text, evidence_at timestamptz)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan TO off
AS $$
#variable_conflict use_column
DECLARE
  evidence CONSTANT text[] := ARRAY['hard-bounce', 'complaint', 'provider-suppression'];
BEGIN
  IF cardinality(keys) IS DISTINCT FROM cardinality(tenants) OR cardinality(keys) IS DISTINCT FROM cardinality(lanes)
    OR cardinality(keys) IS DISTINCT FROM cardinality(reasons) OR cardinality(keys) <> cardinality(addresses)
    OR cardinality(keys) <> cardinality(up_to) THEN
    RAISE EXCEPTION 'keys, tenants, lanes, reasons, addresses and times of lift_suppressions are of different length'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF '*' = ANY (keys) THEN
    -- A recipient that has no row yet may be about to get one by evidence of before.
    LOCK TABLE suppressed_recipient IN EXCLUSIVE MODE;
  END IF;
  PERFORM lock_suppressions(array_remove(keys, '*'));
  RETURN QUERY
  WITH asked AS MATERIALIZED (
    SELECT a.recipient_key, a.tenant, a.lane, a.reason, a.address,
      -- The clock of the provider may be a little ahead of ours: all that is known at this moment counts.
      coalesce(a.up_to, greatest(clock_timestamp(), (
        SELECT max(e.at) FROM email_event AS e
        WHERE e.recipient_key = a.recipient_key AND e.type IN ('bounced', 'complained', 'unsubscribed')
          AND e.at < clock_timestamp() + interval '1 hour'))) AS at
    FROM unnest(keys, tenants, lanes, reasons, addresses, up_to) AS a (recipient_key, tenant, lane, reason, address, up_to)
  ),
  logged AS (
    INSERT INTO suppression_log (recipient_key, tenant, lane, reason, at, by_whom, why, rule_version)
    SELECT DISTINCT a.recipient_key, a.tenant, a.lane, a.reason, a.at, lift_suppressions.by_whom, lift_suppressions.why, rules FROM asked AS a
  ),
  gone AS (
    DELETE FROM suppression AS s USING asked AS a
    WHERE s.recipient_key = a.recipient_key AND a.tenant IN ('*', s.tenant) AND a.lane IN ('*', s.lane) AND a.reason IN ('*', s.reason)
      AND (s.evidence_at IS NULL OR s.evidence_at <= a.at)
    RETURNING s.recipient_key, s.tenant, s.lane, s.reason, s.evidence_id, s.evidence_at
  ),
  gone_everywhere AS (
    DELETE FROM suppression AS s USING asked AS a
    -- The first condition keeps a lift of some recipients from reading the whole table.
    WHERE '*' = ANY (keys) AND a.recipient_key = '*' AND a.tenant IN ('*', s.tenant) AND a.lane IN ('*', s.lane) AND a.reason IN ('*', s.reason)
      AND (s.evidence_at IS NULL OR s.evidence_at <= a.at)
    RETURNING s.recipient_key, s.tenant, s.lane, s.reason, s.evidence_id, s.evidence_at
  ),
  lifted AS (
    SELECT * FROM gone UNION ALL SELECT * FROM gone_everywhere
  ),
  unlisted AS (
    INSERT INTO provider_unlisting AS p (recipient_key, address)
    SELECT n.recipient_key, coalesce(max(n.address), address_of(n.recipient_key))
    FROM (
      SELECT l.recipient_key, (SELECT max(a.address) FROM asked AS a WHERE a.recipient_key = l.recipient_key) AS address
      FROM lifted AS l WHERE l.reason = ANY (evidence)
      UNION ALL
      -- SES may list an address that we do not know of.
      SELECT a.recipient_key, a.address FROM asked AS a
      WHERE a.recipient_key <> '*' AND a.tenant = '*' AND a.lane = '*' AND (a.reason = '*' OR a.reason = ANY (evidence))) AS n
    GROUP BY n.recipient_key
    ON CONFLICT (recipient_key) DO UPDATE SET address = coalesce(excluded.address, p.address), requested = excluded.requested, due = excluded.due, tries = 0
  )
  SELECT l.recipient_key, l.tenant, l.lane, l.reason, l.evidence_id, l.evidence_at FROM lifted AS l;
END
$$;
COMMENT ON FUNCTION lift_suppressions IS 'Lifts in the caller''s transaction: the n-th members of the arrays say what, ''*'' stands for all; returns the suppressions that are gone. Evidence up to the times in up_to, or of all that is known now, suppresses no more. Where SES may list the recipient too, it is put into provider_unlisting, with the address if it is given or known from mail to it.';

-- Between a lift and this moment SES still answered for the address: what it said until now is no new evidence.
CREATE FUNCTION provider_unlisted(key text, asked timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM lock_suppressions(ARRAY[key]);
  IF NOT EXISTS (SELECT FROM provider_unlisting AS p WHERE p.recipient_key = key AND p.requested = asked) THEN
    RETURN false;
  END IF;
  PERFORM lift_suppressions(ARRAY[key], ARRAY['*'], ARRAY['*'], ARRAY['provider-suppression'], 'mailstreams', 'deleted from the list of SES');
  DELETE FROM provider_unlisting AS p WHERE p.recipient_key = key;
  RETURN true;
END
$$;
COMMENT ON FUNCTION provider_unlisted(text, timestamptz) IS 'SES has deleted the recipient from its list, as was asked at this time: forgets the address and lifts what the list had suppressed meanwhile. False if it was asked for again since.';

-- Pointers and life-cycle events -----------------------------------------------------------------------------------

CREATE FUNCTION outbox_pointer(row_of email_outbox, due timestamptz) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object(
    'id', row_of.id, 'tenant', row_of.tenant, 'lane', row_of.lane, 'due', utc_text(due), 'expires', utc_text(row_of.expires_at),
    'recipients', 1 + coalesce(cardinality(row_of.cc), 0) + coalesce(cardinality(row_of.bcc), 0),
    'sender_domain', split_part(row_of.sender, '@', 2), 'template', row_of.template,
    'xid', pg_current_xact_id()::text, 'traceparent', row_of.traceparent))
$$;
COMMENT ON FUNCTION outbox_pointer(email_outbox, timestamptz) IS 'The value of a record of mail.outbox.<lane>: what a sender must know to queue the row, never content, never an address.';

-- VOLATILE, since the clock is: only then is it inlined, and a row's content is not read for the sake of its other columns.
CREATE FUNCTION life_cycle_event(row_of email_outbox, kind text, why text) RETURNS jsonb
LANGUAGE sql VOLATILE
AS $$
  SELECT jsonb_build_object(
    'specversion', '1.0',
    'id', left(encode(sha256(convert_to(row_of.id::text || '/' || kind || '/' || row_of.attempts::text
      || CASE WHEN row_of.redrives > 0 THEN '/' || row_of.redrives::text ELSE '' END, 'UTF8')), 'hex'), 32),
    'source', '/mailstreams/outbox',
    'type', 'mailstreams.email.' || kind,
    'time', utc_text(clock_timestamp()),
    'subject', row_of.recipient_key,
    'datacontenttype', 'application/json',
    'dataschema', 'urn:mailstreams:delivery-event:v1',
    'data', jsonb_build_object('tenant', row_of.tenant, 'outbox_id', row_of.id, 'recipient_key', row_of.recipient_key,
      'dedup_key', row_of.dedup_key, 'sender_domain', lower(split_part(row_of.sender, '@', 2)), 'reason', why))
$$;
COMMENT ON FUNCTION life_cycle_event(email_outbox, text, text) IS 'The CloudEvent of a suppressed, failed, expired or cancelled row, for mail.delivery-events. Its id follows from the row, the kind, the attempts and how often a failed row was sent again.';

CREATE FUNCTION cancel_email(id uuid, reason text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  found_state text;
BEGIN
  IF coalesce(btrim(cancel_email.reason), '') = '' THEN
    RAISE EXCEPTION 'a reason for cancelling is missing' USING ERRCODE = 'invalid_parameter_value', HINT = 'It stands in the event that subscribers get.';
  END IF;
  SELECT o.state INTO found_state FROM email_outbox AS o WHERE o.id = cancel_email.id FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    -- A claim, an outcome or the scheduler has the row this moment.
    SELECT o.state INTO found_state FROM email_outbox AS o WHERE o.id = cancel_email.id;
    RETURN CASE WHEN NOT FOUND THEN 'absent' WHEN found_state IN ('pending', 'sending', 'ambiguous') THEN 'busy' ELSE found_state END;
  END IF;
  IF found_state = 'sending' THEN
    RETURN 'busy';
  ELSIF found_state NOT IN ('pending', 'ambiguous') THEN
    RETURN found_state;
  END IF;
  -- SES is known to have taken it: the scheduler is about to write that.
  IF EXISTS (SELECT FROM email_attempt AS a WHERE a.outbox_id = cancel_email.id AND a.outcome = 'accepted') OR EXISTS (
    SELECT FROM email_event AS e
    WHERE e.outbox_id = cancel_email.id
      AND e.type IN ('accepted', 'delivered', 'delayed', 'bounced', 'complained', 'rejected', 'rendering-failed', 'opened', 'clicked')) THEN
    RETURN 'busy';
  END IF;
  UPDATE email_outbox AS o SET state = 'cancelled', reason = cancel_email.reason, changed = clock_timestamp() WHERE o.id = cancel_email.id;
  RETURN 'cancelled';
END
$$;
COMMENT ON FUNCTION cancel_email(uuid, text) IS 'Cancels a message in the caller''s transaction, and never waits. Returns cancelled; busy: a call is under way, ask again in a moment, nothing is remembered; absent; or the state in which the message has ended, which is too late.';

CREATE FUNCTION email_outbox_announce() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext)
  SELECT 'outbox.' || n.lane, n.recipient_key, 'pointer', outbox_pointer(n, coalesce(n.send_after, n.created)),
    'traceparent=' || n.traceparent
  FROM new_rows AS n
  WHERE n.send_after IS NULL OR n.send_after <= clock_timestamp();
  INSERT INTO email_due (id, due, tenant, lane, why)
  SELECT n.id, n.send_after, n.tenant, n.lane, 'scheduled'
  FROM new_rows AS n
  WHERE n.send_after > now()
  -- clock_timestamp() moves between the two statements: a row due in between must be in one of the two at least.
  ON CONFLICT (id) DO NOTHING;
  RETURN NULL;
END
$$;
CREATE TRIGGER announce AFTER INSERT ON email_outbox REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION email_outbox_announce();

CREATE FUNCTION enqueue_email(
  recipient text, sender text, subject text DEFAULT NULL, body_text text DEFAULT NULL, body_html text DEFAULT NULL,
  template text DEFAULT NULL, variables jsonb DEFAULT NULL, tenant text DEFAULT 'default', lane text DEFAULT 'transactional',
  dedup_key text DEFAULT NULL, send_after timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
  cc text[] DEFAULT NULL, bcc text[] DEFAULT NULL, reply_to text DEFAULT NULL, headers jsonb DEFAULT NULL,
  tags jsonb DEFAULT NULL, traceparent text DEFAULT NULL, template_version integer DEFAULT NULL, on_ambiguous text DEFAULT 'hold',
  attachments jsonb DEFAULT NULL, sender_name text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  made uuid;
BEGIN
  INSERT INTO email_outbox (recipient, sender, subject, text, html, template, template_version, variables, tenant, lane,
    dedup_key, send_after, expires_at, cc, bcc, reply_to, headers, tags, traceparent, on_ambiguous, attachments, sender_name)
  VALUES (enqueue_email.recipient, enqueue_email.sender, enqueue_email.subject, body_text, body_html, enqueue_email.template,
    enqueue_email.template_version, enqueue_email.variables, enqueue_email.tenant, enqueue_email.lane, enqueue_email.dedup_key,
    enqueue_email.send_after, enqueue_email.expires_at, enqueue_email.cc, enqueue_email.bcc, enqueue_email.reply_to,
    enqueue_email.headers, enqueue_email.tags, enqueue_email.traceparent, enqueue_email.on_ambiguous, enqueue_email.attachments,
    enqueue_email.sender_name)
  ON CONFLICT (tenant, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
  RETURNING id INTO made;
  IF made IS NULL THEN
    SELECT o.id INTO STRICT made FROM email_outbox AS o
    WHERE o.tenant = enqueue_email.tenant AND o.dedup_key = enqueue_email.dedup_key;
  END IF;
  RETURN made;
END
$$;
COMMENT ON FUNCTION enqueue_email IS 'Puts one e-mail into the outbox in the caller''s transaction and returns its id; with a dedup key that the tenant has used before, the id of the row made then.';

-- Rate, pauses, templates, duties ----------------------------------------------------------------------------------

-- One row a sending account and region. next_free is the theoretical arrival time of GCRA. The rest is the circuit: calls
-- that failed in a row, of which messages (the first 20), whether none was written; since when it is open, its probes,
-- and a number that changes with all that happens to a probe.
CREATE TABLE send_rate (
  scope text PRIMARY KEY,
  per_second double precision NOT NULL CHECK (per_second > 0),
  next_free timestamptz NOT NULL DEFAULT clock_timestamp(),
  granted bigint NOT NULL DEFAULT 0,
  read_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  failing integer NOT NULL DEFAULT 0,
  failing_messages uuid[] NOT NULL DEFAULT '{}',
  failing_unwritten boolean NOT NULL DEFAULT true,
  failing_reason text,
  failing_since timestamptz,
  open_since timestamptz,
  probes integer NOT NULL DEFAULT 0,
  probe_at timestamptz,
  probe_number bigint NOT NULL DEFAULT 0,
  CONSTRAINT probe_at_while_open CHECK ((open_since IS NULL) = (probe_at IS NULL))
);

CREATE TABLE pause (
  scope text NOT NULL CHECK (scope IN ('account', 'sender', 'tenant', 'lane', 'template')),
  value text NOT NULL,
  reason text NOT NULL,
  who text NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  until timestamptz,
  PRIMARY KEY (scope, value)
);

CREATE TABLE template (
  tenant text NOT NULL,
  name text NOT NULL CHECK (name ~ '^[A-Za-z0-9_-]{1,64}$'),
  version integer NOT NULL CHECK (version > 0),
  subject text NOT NULL,
  text text,
  html text,
  created timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, name, version),
  CHECK (text IS NOT NULL OR html IS NOT NULL)
);

-- A duty of the scheduler is taken by one replica at a time: whoever moves next_at on. position is the id up to which
-- sweep_pending has looked at the outbox.
CREATE TABLE scheduler_duty (
  name text PRIMARY KEY,
  next_at timestamptz NOT NULL DEFAULT '-infinity',
  position uuid
);

CREATE TABLE relay_checkpoint (
  slot text PRIMARY KEY,
  lsn pg_lsn NOT NULL,
  system_id text NOT NULL,
  timeline integer NOT NULL,
  stored timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What could be seen at a position of the WAL, so that a position that the slot has confirmed tells which rows it has passed.
-- Gone when a newer one is confirmed.
CREATE TABLE feed_mark (
  taken timestamptz PRIMARY KEY,
  lsn pg_lsn NOT NULL,
  snapshot pg_snapshot NOT NULL,
  system_id text NOT NULL
);

CREATE FUNCTION feed_partitions() RETURNS TABLE (partition regclass, ends timestamptz)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT c.oid::regclass, (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC'
  FROM pg_inherits AS i
  JOIN pg_class AS c ON c.oid = i.inhrelid
  WHERE i.inhparent = 'outbox_feed'::regclass AND c.relname ~ '^outbox_feed_[0-9]{8}$'
$$;
COMMENT ON FUNCTION feed_partitions() IS 'The day partitions of the feed, and when the day of each ends.';

-- The relay's own position counts beside the slot's: one that was made anew stands beyond rows that are not sent yet, and 0 says
-- that they are being sent again.
CREATE FUNCTION feed_confirmed(slot text) RETURNS pg_lsn
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT CASE WHEN c.system_id <> (SELECT system_identifier::text FROM pg_control_system()) THEN NULL ELSE least(s.confirmed_flush_lsn, c.lsn) END
  FROM pg_replication_slots AS s
  LEFT JOIN relay_checkpoint AS c ON c.slot = s.slot_name
  WHERE s.slot_name = feed_confirmed.slot AND s.database = current_database() AND s.active AND s.wal_status <> 'lost'
$$;
COMMENT ON FUNCTION feed_confirmed(text) IS 'Up to where Kafka has the feed for certain; null if the slot is not there, not in use or lost.';

CREATE FUNCTION feed_confirmed_snapshot(slot text) RETURNS pg_snapshot
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT m.snapshot FROM feed_mark AS m
  WHERE m.lsn <= feed_confirmed(slot) AND m.system_id = (SELECT system_identifier::text FROM pg_control_system())
  ORDER BY m.lsn DESC LIMIT 1
$$;

CREATE FUNCTION mark_feed(slot text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  cluster CONSTANT text := (SELECT system_identifier::text FROM pg_control_system());
BEGIN
  DELETE FROM feed_mark AS m
  WHERE m.system_id <> cluster OR m.lsn < (SELECT max(n.lsn) FROM feed_mark AS n WHERE n.system_id = cluster AND n.lsn <= feed_confirmed(slot));
  -- The snapshot is taken before the position is read: whatever it sees was written before.
  INSERT INTO feed_mark (taken, lsn, snapshot, system_id)
  SELECT clock_timestamp(), pg_current_wal_insert_lsn(), pg_current_snapshot(), cluster
  ON CONFLICT (taken) DO NOTHING;
END
$$;
COMMENT ON FUNCTION mark_feed(text) IS 'Notes what can be seen now, and at which position of the WAL.';

-- Not DETACH CONCURRENTLY: PostgreSQL refuses that beside a default partition. What may wait or read is done before the lock that
-- inserts wait behind, and that one is asked for in turns of 50 ms.
CREATE FUNCTION drop_feed_partition(slot text, keep interval) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  oldest regclass;
  confirmed pg_snapshot;
  needed boolean;
BEGIN
  SELECT p.partition INTO oldest FROM feed_partitions() AS p
  WHERE p.ends < clock_timestamp() - greatest(keep, interval '0') ORDER BY p.ends LIMIT 1;
  IF NOT FOUND THEN
    RETURN 'none';
  END IF;
  confirmed := feed_confirmed_snapshot(slot);
  BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', oldest);
  EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
  END;
  EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE pg_visible_in_snapshot(xid, $1) IS NOT TRUE)', oldest) INTO needed USING confirmed;
  IF needed THEN
    RETURN 'unconfirmed';
  END IF;
  PERFORM set_config('lock_timeout', '50ms', true);
  -- Behind a pooler a client may freeze before it commits.
  PERFORM set_config('idle_in_transaction_session_timeout', '1s', true);
  FOR turn IN 1..5 LOOP
    BEGIN
      LOCK TABLE outbox_feed_default IN ACCESS EXCLUSIVE MODE NOWAIT;
      LOCK TABLE ONLY outbox_feed IN ACCESS EXCLUSIVE MODE;
      EXECUTE format('DROP TABLE %s', oldest);
      RETURN 'dropped';
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      PERFORM pg_sleep(0.2);
    END;
  END LOOP;
  RETURN 'busy';
END
$$;
COMMENT ON FUNCTION drop_feed_partition(text, interval) IS 'Drops the oldest partition whose day ended so long ago, if Kafka has all of it by the slot, or it is empty. Returns dropped, none (no partition is so old), unconfirmed, or busy (somebody uses it; ask again). An insert waits 100 ms at most.';

CREATE FUNCTION purge_feed_default(slot text, keep interval, at_most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  confirmed CONSTANT pg_snapshot := feed_confirmed_snapshot(slot);
  removed integer;
BEGIN
  DELETE FROM outbox_feed_default AS f
  WHERE f.ctid = ANY (ARRAY(
    SELECT o.ctid FROM outbox_feed_default AS o
    WHERE o.ts < (clock_timestamp() - greatest(keep, interval '0')) AT TIME ZONE 'UTC' AND pg_visible_in_snapshot(o.xid, confirmed)
    LIMIT at_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END
$$;
COMMENT ON FUNCTION purge_feed_default(text, interval, integer) IS 'Removes rows of the feed that lie in no day partition, as drop_feed_partition does with whole days; returns how many.';

-- Empty while no relay has ever polled. A lease is held until it expires by this server's clock; shards: of how many this is one.
CREATE TABLE relay_shard (
  shard integer PRIMARY KEY CHECK (shard >= 0),
  shards integer NOT NULL CHECK (shards > shard),
  holder uuid,
  expires timestamptz NOT NULL DEFAULT '-infinity'
);

-- Relays in polling mode that live, with or without a shard, so that each knows its fair share.
CREATE TABLE relay_poller (
  id uuid PRIMARY KEY,
  expires timestamptz NOT NULL
);

-- What Kafka had of the feed when polling began: rows that the snapshot sees are removed and not sent. Only within this history of
-- this cluster, since another one gives the same transaction ids again. Gone when they are removed.
CREATE TABLE relay_acknowledged (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  snapshot pg_snapshot NOT NULL,
  system_id text NOT NULL,
  timeline integer NOT NULL
);

-- Rows of the feed that can never be Kafka records, set aside so that the slot goes on. A person decides.
CREATE TABLE relay_refused (
  id uuid PRIMARY KEY,
  seq bigint NOT NULL,
  aggregatetype text,
  aggregateid text,
  type text,
  payload text,
  tracingspancontext text,
  reason text NOT NULL CHECK (reason IN ('no-key', 'no-topic', 'too-large', 'refused-by-kafka')),
  detail text,
  refused timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The accept API ---------------------------------------------------------------------------------------------------

-- What a tenant may post. per_second and burst bound its rate (GCRA; next_free is the theoretical arrival time), quota its
-- messages a UTC day or month; null: no bound. senders: the addresses and domains that it may write as sender; null: any.
CREATE TABLE tenant (
  name text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_-]{1,64}$'),
  senders text[],
  per_second double precision CHECK (per_second > 0),
  burst integer NOT NULL DEFAULT 100 CHECK (burst > 0),
  quota bigint CHECK (quota >= 0),
  quota_period text NOT NULL DEFAULT 'month' CHECK (quota_period IN ('day', 'month')),
  next_free timestamptz NOT NULL DEFAULT '-infinity',
  quota_since timestamptz NOT NULL DEFAULT '-infinity',
  quota_used bigint NOT NULL DEFAULT 0,
  created timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The secret of a key is shown once and never kept: hash is its SHA-256. What a test key posts is never sent.
CREATE TABLE api_key (
  id text PRIMARY KEY CHECK (id ~ '^[a-z2-7]{16}$'),
  tenant text NOT NULL REFERENCES tenant,
  label text NOT NULL CHECK (label <> ''),
  hash bytea NOT NULL CHECK (length(hash) = 32),
  test boolean NOT NULL,
  scopes text[] NOT NULL CHECK (scopes <@ ARRAY['emails:send', 'emails:read', 'suppressions:read', 'suppressions:write'] AND scopes <> '{}'),
  created timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires timestamptz,
  revoked timestamptz
);

-- The first answer under an Idempotency-Key, made with the rows that it tells of. Kept for a day.
CREATE TABLE idempotency_key (
  tenant text NOT NULL,
  test boolean NOT NULL,
  key text NOT NULL,
  digest bytea NOT NULL,
  answer jsonb,
  created timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant, test, key)
);
-- Serves purge_idempotency_keys.
CREATE INDEX idempotency_key_created ON idempotency_key (created);

CREATE FUNCTION accept_emails(whose text, is_test boolean, idempotency text, body_digest bytea, emails jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET enable_seqscan TO off
AS $$
#variable_conflict use_column
DECLARE
  plan tenant%ROWTYPE;
  kept idempotency_key%ROWTYPE;
  asked CONSTANT integer := jsonb_array_length(emails);
  at timestamptz;
  free_at timestamptz;
  period timestamptz;
  used bigint;
  refused text;
  wait_s double precision;
  told jsonb;
BEGIN
  -- Locked before anything else, so that requests of one tenant never wait for each other in a circle.
  SELECT * INTO plan FROM tenant AS t WHERE t.name = whose AND (t.per_second IS NOT NULL OR t.quota IS NOT NULL) FOR NO KEY UPDATE;

  -- Whoever inserts the key goes on; a twin waits here until that is committed.
  WHILE idempotency IS NOT NULL LOOP
    INSERT INTO idempotency_key (tenant, test, key, digest) VALUES (whose, is_test, idempotency, body_digest) ON CONFLICT (tenant, test, key) DO NOTHING;
    EXIT WHEN FOUND;
    SELECT * INTO kept FROM idempotency_key AS k WHERE k.tenant = whose AND k.test = is_test AND k.key = idempotency;
    IF FOUND THEN
      RETURN jsonb_build_object('outcome', CASE WHEN kept.digest = body_digest THEN 'replayed' ELSE 'conflict' END, 'emails', kept.answer);
    END IF;
  END LOOP;

  at := clock_timestamp();
  IF plan.per_second IS NOT NULL THEN
    -- A clock that was set back must not shut the tenant out for longer than a full batch could.
    free_at := least(greatest(plan.next_free, at), at + make_interval(secs => (plan.burst + 500) / plan.per_second));
    wait_s := extract(epoch FROM free_at - at) - (plan.burst - least(asked, plan.burst)) / plan.per_second;
    refused := CASE WHEN wait_s > 0 THEN 'rate-limited' END;
  END IF;
  IF plan.quota IS NOT NULL THEN
    period := date_trunc(plan.quota_period, at, 'UTC');
    used := CASE WHEN plan.quota_since = period THEN plan.quota_used ELSE 0 END;
    IF NOT is_test AND used + asked > plan.quota THEN
      refused := 'quota-used-up';
      wait_s := extract(epoch FROM (period AT TIME ZONE 'UTC' + ('1 ' || plan.quota_period)::interval) AT TIME ZONE 'UTC' - at);
    END IF;
  END IF;
  IF refused IS NOT NULL THEN
    DELETE FROM idempotency_key AS k WHERE k.tenant = whose AND k.test = is_test AND k.key = idempotency;
    RETURN jsonb_build_object('outcome', refused, 'wait_s', wait_s, 'burst', plan.burst, 'per_second', plan.per_second,
      'quota', plan.quota, 'quota_left', plan.quota - used);
  END IF;

  WITH given AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(emails) AS g (n integer, id uuid, lane text, dedup_key text, recipient text, recipient_key text, cc text[],
      bcc text[], sender text, sender_name text, reply_to text, subject text, text text, html text, template text, template_version integer,
      variables jsonb, headers jsonb, attachments jsonb, tags jsonb, send_after timestamptz, expires_at timestamptz, on_ambiguous text, traceparent text)
  ),
  barred AS MATERIALIZED (
    SELECT DISTINCT ON (g.n) g.n, s.reason, s.created, s.expires
    FROM given AS g
    JOIN suppression AS s ON s.recipient_key = g.recipient_key AND s.tenant IN ('*', whose) AND s.lane IN ('*', g.lane)
      AND (s.expires IS NULL OR s.expires > at)
    ORDER BY g.n, s.created, s.reason
  ),
  untold AS MATERIALIZED (
    SELECT g.n FROM given AS g
    WHERE g.template IS NOT NULL AND NOT EXISTS (
      SELECT FROM template AS t
      WHERE t.tenant = whose AND t.name = g.template AND (g.template_version IS NULL OR t.version = g.template_version))
  ),
  made AS (
    INSERT INTO email_outbox (id, tenant, lane, dedup_key, recipient, cc, bcc, sender, sender_name, reply_to, subject, text, html, template,
      template_version, variables, headers, attachments, tags, send_after, expires_at, on_ambiguous, traceparent)
    SELECT g.id, whose, g.lane, g.dedup_key, g.recipient, g.cc, g.bcc, g.sender, g.sender_name, g.reply_to, g.subject, g.text, g.html, g.template,
      g.template_version, g.variables, g.headers, g.attachments, g.tags, g.send_after, g.expires_at, g.on_ambiguous, g.traceparent
    FROM given AS g
    WHERE NOT EXISTS (SELECT FROM barred AS b WHERE b.n = g.n) AND NOT EXISTS (SELECT FROM untold AS u WHERE u.n = g.n)
    ORDER BY g.dedup_key, g.n
    ON CONFLICT (tenant, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
    RETURNING id
  )
  SELECT jsonb_agg(CASE
      WHEN b.n IS NOT NULL THEN jsonb_build_object('n', g.n, 'outcome', 'suppressed', 'reason', b.reason, 'since', utc_text(b.created), 'until', utc_text(b.expires))
      WHEN u.n IS NOT NULL THEN jsonb_build_object('n', g.n, 'outcome', 'no-template')
      WHEN m.id IS NOT NULL THEN jsonb_build_object('n', g.n, 'outcome', 'accepted', 'id', m.id)
      ELSE jsonb_build_object('n', g.n, 'outcome', 'twin', 'dedup_key', g.dedup_key) END)
    INTO told
  FROM given AS g
  LEFT JOIN barred AS b ON b.n = g.n
  LEFT JOIN untold AS u ON u.n = g.n
  LEFT JOIN made AS m ON m.id = g.id;

  -- The row of a dedup key that was used before may have been committed after the snapshot of the insert.
  IF told @> '[{"outcome": "twin"}]' THEN
    SELECT jsonb_agg(CASE WHEN a ->> 'outcome' = 'twin' THEN jsonb_build_object('n', a -> 'n', 'outcome', 'known', 'id', (
        SELECT o.id FROM email_outbox AS o WHERE o.tenant = whose AND o.dedup_key = a ->> 'dedup_key')) ELSE a END)
      INTO told
    FROM jsonb_array_elements(told) AS a;
  END IF;

  -- Never sent: the rows end here, before anybody else can see them.
  IF is_test THEN
    UPDATE email_outbox AS o SET state = 'cancelled', reason = 'accepted with a test key, which never sends', changed = clock_timestamp()
    WHERE o.id = ANY (ARRAY(SELECT (a ->> 'id')::uuid FROM jsonb_array_elements(told) AS a WHERE a ->> 'outcome' = 'accepted'));
  END IF;
  IF plan.name IS NOT NULL THEN
    UPDATE tenant AS t
    SET next_free = CASE WHEN plan.per_second IS NULL THEN t.next_free ELSE free_at + make_interval(secs => asked / plan.per_second) END,
      quota_since = coalesce(period, t.quota_since),
      quota_used = coalesce(used, 0) + CASE WHEN is_test THEN 0 ELSE (
        SELECT count(*) FROM jsonb_array_elements(told) AS a WHERE a ->> 'outcome' = 'accepted') END
    WHERE t.name = whose;
  END IF;
  IF told @> '[{"outcome": "accepted"}]' OR told @> '[{"outcome": "known"}]' THEN
    UPDATE idempotency_key AS k SET answer = told WHERE k.tenant = whose AND k.test = is_test AND k.key = idempotency;
  ELSE
    DELETE FROM idempotency_key AS k WHERE k.tenant = whose AND k.test = is_test AND k.key = idempotency;
  END IF;
  RETURN jsonb_build_object('outcome', 'decided', 'emails', told, 'burst', plan.burst, 'per_second', plan.per_second,
    'left', floor(plan.burst - (extract(epoch FROM free_at - at) * plan.per_second + asked)));
END
$$;
COMMENT ON FUNCTION accept_emails IS 'One request of the accept API in the caller''s transaction: idempotency, rate, quota, suppressions and templates are looked at, and the rows of what is accepted are made. emails: an array of objects with the columns of email_outbox, and n, by which the answer names them. outcome: decided, replayed, conflict, rate-limited or quota-used-up; of each e-mail: accepted, known (its dedup key was used before), suppressed or no-template.';

CREATE FUNCTION reschedule_email(id uuid, send_after timestamptz) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  found_state text;
  found_time timestamptz;
BEGIN
  SELECT o.state, o.send_after INTO found_state, found_time FROM email_outbox AS o WHERE o.id = reschedule_email.id FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    SELECT o.state INTO found_state FROM email_outbox AS o WHERE o.id = reschedule_email.id;
    RETURN CASE WHEN NOT FOUND THEN 'absent' WHEN found_state IN ('pending', 'sending', 'ambiguous') THEN 'busy' ELSE found_state END;
  ELSIF found_state <> 'pending' THEN
    RETURN found_state;
  ELSIF coalesce(found_time <= clock_timestamp(), true) THEN
    RETURN 'due';
  ELSIF NOT EXISTS (SELECT FROM email_due AS d WHERE d.id = reschedule_email.id FOR UPDATE SKIP LOCKED) THEN
    RETURN 'busy';
  END IF;
  UPDATE email_outbox AS o SET send_after = reschedule_email.send_after, changed = clock_timestamp() WHERE o.id = reschedule_email.id;
  RETURN 'rescheduled';
END
$$;
COMMENT ON FUNCTION reschedule_email(uuid, timestamptz) IS 'Gives a message that is pending and scheduled another time, in the caller''s transaction, and never waits. Returns rescheduled; due: its time has come, or it never had one; busy: ask again in a moment; absent; or the state that it is in.';
