-- Empties messages to a recipient that have ended: contents, the address, what is known of the delivery. What is not ended, or in other hands, is left; returns how many were emptied. $1 recipient key text, $2 outbox ids uuid[] (each once), $3 by whom text, $4 why text.
WITH ended AS MATERIALIZED (
  SELECT o.id
  FROM (SELECT n.id FROM unnest($2::uuid[]) AS n (id) ORDER BY n.id) AS a
  CROSS JOIN LATERAL (
    SELECT o.id FROM email_outbox AS o
    WHERE o.id = a.id AND o.recipient_key = $1 AND o.state NOT IN ('pending', 'sending', 'ambiguous') FOR NO KEY UPDATE SKIP LOCKED) AS o
),
emptied AS (
  UPDATE email_outbox AS o
  SET recipient = erased_address(), subject = NULL, text = NULL, html = NULL, variables = NULL, headers = NULL, attachments = NULL, tags = NULL,
    dedup_key = CASE WHEN strpos(lower(o.dedup_key), lower(o.recipient)) = 0 THEN o.dedup_key END,
    purged = coalesce(o.purged, clock_timestamp()), changed = clock_timestamp()
  WHERE o.id = ANY (ARRAY(SELECT e.id FROM ended AS e))
  RETURNING o.id
),
-- Nobody can send it again.
letters AS (
  DELETE FROM dead_letter AS l WHERE l.outbox_id = ANY (ARRAY(SELECT e.id FROM ended AS e))
),
decided AS (
  UPDATE email_unsettled AS u SET decided = clock_timestamp() WHERE u.outbox_id = ANY (ARRAY(SELECT e.id FROM ended AS e)) AND u.decided IS NULL
),
events AS (
  DELETE FROM email_event AS v WHERE v.outbox_id = ANY (ARRAY(SELECT e.id FROM ended AS e)) AND v.recipient_key = $1
),
facts AS (
  DELETE FROM recipient_outcome AS f WHERE f.outbox_id = ANY (ARRAY(SELECT e.id FROM ended AS e)) AND f.recipient_key = $1
),
logged AS (
  INSERT INTO audit_log (by_whom, action, why, recipient_key, detail)
  SELECT $3, 'recipient.erased', $4, $1, jsonb_build_object('messages', count(*)) FROM emptied HAVING count(*) > 0
)
SELECT count(*) FROM emptied
