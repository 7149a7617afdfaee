-- 0006, before the code: what the accept API keeps, and messages that get another time.

-- Serves list_api_emails: the messages of one tenant, newest first.
CREATE INDEX email_outbox_tenant ON email_outbox (tenant, id);

DROP TRIGGER unchanging ON email_outbox;
DROP FUNCTION refuse_change();

-- The keys belong to the addresses, the lane to the topic: none of them changes once it is told.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
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
