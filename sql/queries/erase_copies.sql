-- Takes a recipient's address out of messages of others that have ended; what is not ended, or in other hands, is left; returns how many were changed. $1 recipient key text, $2 outbox ids uuid[] (each once), $3 by whom text, $4 why text.
WITH ended AS MATERIALIZED (
  SELECT o.id
  FROM (SELECT n.id FROM unnest($2::uuid[]) AS n (id) ORDER BY n.id) AS a
  CROSS JOIN LATERAL (
    SELECT o.id FROM email_outbox AS o
    WHERE o.id = a.id AND o.state NOT IN ('pending', 'sending', 'ambiguous') FOR NO KEY UPDATE SKIP LOCKED) AS o
),
changed AS (
  UPDATE email_outbox AS o
  SET changed = clock_timestamp(),
    cc = CASE WHEN o.cc IS NOT NULL THEN ARRAY(
      SELECT CASE WHEN c.key = $1 THEN erased_address() ELSE c.address END FROM unnest(o.cc, o.cc_keys) WITH ORDINALITY AS c (address, key, n) ORDER BY c.n) END,
    bcc = CASE WHEN o.bcc IS NOT NULL THEN ARRAY(
      SELECT CASE WHEN c.key = $1 THEN erased_address() ELSE c.address END FROM unnest(o.bcc, o.bcc_keys) WITH ORDINALITY AS c (address, key, n) ORDER BY c.n) END
  WHERE o.id = ANY (ARRAY(SELECT e.id FROM ended AS e))
  RETURNING o.id
),
events AS (
  DELETE FROM email_event AS v WHERE v.outbox_id = ANY (ARRAY(SELECT e.id FROM ended AS e)) AND v.recipient_key = $1
),
facts AS (
  DELETE FROM recipient_outcome AS f WHERE f.outbox_id = ANY (ARRAY(SELECT e.id FROM ended AS e)) AND f.recipient_key = $1
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  SELECT $3, 'recipient.erased', $4, $1, jsonb_build_object('copies', count(*)) FROM changed HAVING count(*) > 0
)
SELECT count(*) FROM changed
