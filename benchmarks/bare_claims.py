"""The least that a claim and an outcome can be: what the statements of the sender are compared with in the same run.

One row that is its own lock and carries the token, a lease, an attempt, one look at the suppressions. No checks, no pauses, no
evidence, no wake-ups, no verdicts.
"""

from typing import Final

TABLES: Final = """
CREATE TABLE bare_outbox (
  id uuid PRIMARY KEY, tenant text, lane text, recipient text, recipient_key text, sender text, subject text, text text, html text,
  send_after timestamptz, expires_at timestamptz, state text NOT NULL DEFAULT 'pending', attempt_id uuid,
  attempts smallint NOT NULL DEFAULT 0, changed timestamptz
) WITH (fillfactor = 45, toast_tuple_target = 256);
ALTER TABLE bare_outbox ALTER COLUMN text SET COMPRESSION lz4;
CREATE TABLE bare_lease (id uuid PRIMARY KEY, attempt_id uuid NOT NULL, expires timestamptz NOT NULL);
CREATE TABLE bare_attempt (
  id uuid PRIMARY KEY, outbox_id uuid NOT NULL, started timestamptz, finished timestamptz, outcome text, provider_message_id text);
"""

# Filled from the outbox, so that both hold the same rows.
FILL: Final = """
INSERT INTO bare_outbox (id, tenant, lane, recipient, recipient_key, sender, subject, text, send_after, expires_at)
SELECT id, tenant, lane, recipient, recipient_key, sender, subject, text || '', send_after, expires_at FROM email_outbox ORDER BY id
"""

CLAIM: Final = """
WITH asked AS MATERIALIZED (
  SELECT o.id, a.token
  FROM unnest($1::uuid[], $2::uuid[]) AS a (id, token) JOIN bare_outbox AS o ON o.id = a.id
  ORDER BY o.id FOR NO KEY UPDATE OF o SKIP LOCKED
),
moved AS (
  UPDATE bare_outbox AS o
  SET state = 'sending', attempt_id = a.token, attempts = o.attempts + 1, changed = statement_timestamp()
  FROM asked AS a
  WHERE o.id = a.id AND o.state = 'pending'
    AND (o.send_after IS NULL OR o.send_after <= statement_timestamp())
    AND (o.expires_at IS NULL OR o.expires_at > statement_timestamp())
    AND (SELECT true FROM suppression AS s
      WHERE s.recipient_key = o.recipient_key AND s.tenant IN ('*', o.tenant) AND s.lane IN ('*', o.lane) LIMIT 1) IS NULL
  RETURNING o.id, o.attempt_id, o.attempts, o.tenant, o.lane, o.recipient, o.sender, o.subject, o.text, o.html
),
leased AS (
  INSERT INTO bare_lease (id, attempt_id, expires)
  SELECT m.id, m.attempt_id, statement_timestamp() + interval '45 seconds' FROM moved AS m
)
SELECT * FROM moved
"""

OUTCOME: Final = """
WITH told AS MATERIALIZED (
  SELECT o.id, a.token, a.provider_message_id
  FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS a (id, token, provider_message_id) JOIN bare_outbox AS o ON o.id = a.id
  ORDER BY o.id FOR NO KEY UPDATE OF o
),
moved AS (
  UPDATE bare_outbox AS o SET state = 'submitted', attempt_id = NULL, changed = statement_timestamp()
  FROM told AS t WHERE o.id = t.id AND o.state = 'sending' AND o.attempt_id = t.token
  RETURNING o.id, t.token, t.provider_message_id
),
returned AS (
  DELETE FROM bare_lease AS l USING told AS t WHERE l.id = t.id AND l.attempt_id = t.token
),
kept AS (
  INSERT INTO bare_attempt (id, outbox_id, started, finished, outcome, provider_message_id)
  SELECT m.token, m.id, statement_timestamp(), statement_timestamp(), 'accepted', m.provider_message_id FROM moved AS m
)
SELECT token FROM moved
"""
