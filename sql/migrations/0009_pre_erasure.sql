-- 0009, before the code: contents and addresses can leave messages that have ended.

-- purged: when its contents were removed.
ALTER TABLE email_outbox ADD COLUMN purged timestamptz;

CREATE OR REPLACE FUNCTION email_outbox_complete() RETURNS trigger
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

DROP TRIGGER content ON email_outbox;
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
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger
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

CREATE OR REPLACE FUNCTION address_of(key text) RETURNS text
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
