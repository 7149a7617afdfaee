-- Removes what is left of a recipient besides messages: events without one, or of messages that are gone, states, the address kept for SES's list. Suppressions and lifts stay. Says how much of each. $1 recipient key text, $2 by whom text, $3 why text, $4 dry run bool.
WITH state AS MATERIALIZED (
  SELECT s.tenant FROM recipient_state AS s WHERE s.recipient_key = $1 FOR UPDATE
),
loose AS MATERIALIZED (
  SELECT v.event_id FROM email_event AS v WHERE v.recipient_key = $1 AND v.outbox_id IS NULL
  UNION
  SELECT v.event_id FROM email_event AS v
  WHERE v.recipient_key = $1 AND v.type IN ('bounced', 'complained', 'unsubscribed')
    AND ((SELECT o.recipient = erased_address() FROM email_outbox AS o WHERE o.id = v.outbox_id AND o.recipient_key = $1) IS NOT FALSE)
),
listed AS MATERIALIZED (
  SELECT p.recipient_key FROM provider_unlisting AS p WHERE p.recipient_key = $1 AND p.address IS NOT NULL
),
events AS (
  DELETE FROM email_event AS v WHERE v.recipient_key = $1 AND v.event_id = ANY (ARRAY(SELECT l.event_id FROM loose AS l)) AND NOT $4
),
states AS (
  DELETE FROM recipient_state AS s WHERE s.recipient_key = $1 AND s.tenant = ANY (ARRAY(SELECT t.tenant FROM state AS t)) AND NOT $4
),
unlisted AS (
  UPDATE provider_unlisting AS p SET address = NULL WHERE p.recipient_key = ANY (ARRAY(SELECT l.recipient_key FROM listed AS l)) AND NOT $4
),
counted AS (
  SELECT (SELECT count(*) FROM loose) AS events, (SELECT count(*) FROM state) AS states, (SELECT count(*) FROM listed) AS addresses
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  SELECT $2, 'recipient.erased', $3, $1, to_jsonb(c) FROM counted AS c WHERE c.events + c.states + c.addresses > 0 AND NOT $4
)
SELECT c.events, c.states, c.addresses, (SELECT count(*) FROM suppression AS s WHERE s.recipient_key = $1) AS suppressions FROM counted AS c
