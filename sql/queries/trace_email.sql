-- The story of one message, oldest first. $1 outbox id uuid.
WITH story AS (
  SELECT created AS at, 1 AS step, 'committed' AS what,
    concat_ws(', ', 'tenant ' || tenant, lane, 'recipient ' || recipient_key, 'due ' || utc_text(send_after), 'template ' || template, 'dedup key ' || dedup_key) AS detail
  FROM email_outbox WHERE id = $1
  UNION ALL
  SELECT started, 2, 'attempt ' || number, concat_ws(', ', 'id ' || id, 'SES called')
  FROM email_attempt WHERE outbox_id = $1
  UNION ALL
  SELECT finished, 3, 'attempt ' || number || ' ' || outcome, concat_ws(', ', 'provider id ' || provider_message_id, 'status ' || http_status, code, reason)
  FROM email_attempt WHERE outbox_id = $1
  UNION ALL
  SELECT at, 4, 'event ' || type, concat_ws(', ', payload #>> '{bounce,type}', payload #>> '{bounce,reason}', payload #>> '{complaint,type}', 'recipient ' || recipient_key, 'folded ' || utc_text(received))
  FROM email_event WHERE outbox_id = $1
  UNION ALL
  SELECT d.created, 5, 'dead letter', d.class || ': ' || d.reason
  FROM dead_letter AS d WHERE d.outbox_id = $1
  UNION ALL
  SELECT s.created, 6, 'suppressed', concat_ws(', ', s.reason, 'tenant ' || s.tenant, 'lane ' || s.lane, 'until ' || utc_text(s.expires))
  FROM email_outbox AS o
  JOIN suppression AS s ON s.recipient_key = o.recipient_key
  WHERE o.id = $1
  UNION ALL
  SELECT l.started, 7, 'call under way', 'attempt ' || l.attempt_id || ', lease until ' || utc_text(l.expires)
  FROM email_lease AS l WHERE l.id = $1
  UNION ALL
  SELECT w.due, 8, 'waits', w.why FROM email_due AS w WHERE w.id = $1
  UNION ALL
  SELECT changed, 9, 'state ' || state, reason FROM email_outbox WHERE id = $1
)
SELECT utc_text(at) AS at, what, nullif(detail, '') AS detail FROM story ORDER BY story.at, step;
