-- The story of one message, oldest first; what holds it now comes last. Addresses are masked unless $2. Every look-up goes by an index. $1 outbox id uuid, $2 with addresses bool.
WITH own AS MATERIALIZED (
  SELECT o.id, o.tenant, o.lane, o.recipient, o.recipient_key, o.cc, o.cc_keys, o.bcc, o.bcc_keys, o.sender, o.template, o.template_version, o.dedup_key,
    o.send_after, o.expires_at, o.on_ambiguous, o.state, o.attempts, o.redrives, o.reason, o.created, o.changed, o.purged
  FROM email_outbox AS o WHERE o.id = $1
),
address AS MATERIALIZED (
  SELECT a.kind, CASE WHEN $2 OR a.address = erased_address() THEN a.address ELSE regexp_replace(a.address, '^(.).*@', '\1***@') END AS address, a.key
  FROM own AS o
  CROSS JOIN LATERAL (
    SELECT 'to' AS kind, o.recipient AS address, o.recipient_key AS key
    UNION ALL SELECT 'cc', c.address, c.key FROM unnest(o.cc, o.cc_keys) AS c (address, key)
    UNION ALL SELECT 'bcc', b.address, b.key FROM unnest(o.bcc, o.bcc_keys) AS b (address, key)) AS a
),
story AS (
  SELECT created AS at, 10 AS step, 'committed' AS what,
    concat_ws(', ', 'tenant ' || tenant, lane, 'sender ' || sender, 'template ' || template || coalesce(' v' || template_version, ''),
      'dedup key ' || CASE WHEN $2 THEN dedup_key ELSE regexp_replace(dedup_key, '([^\s@])[^\s@]*@', '\1***@', 'g') END,
      'due ' || utc_text(send_after), 'expires ' || utc_text(expires_at), 'if unknown ' || on_ambiguous) AS detail
  FROM own
  UNION ALL
  SELECT o.created, 11, a.kind, a.address || ', recipient ' || a.key FROM own AS o CROSS JOIN address AS a
  UNION ALL
  SELECT started, 20, 'attempt ' || number, concat_ws(', ', 'id ' || id, 'SES called')
  FROM email_attempt WHERE outbox_id = $1 AND started IS NOT NULL
  UNION ALL
  SELECT finished, 21, 'attempt ' || number || ' ' || outcome,
    concat_ws(', ', 'id ' || id, 'provider id ' || provider_message_id, 'status ' || http_status, code, reason, 'left out ' || array_to_string(left_out, ' '))
  FROM email_attempt WHERE outbox_id = $1
  UNION ALL
  SELECT since, 22, 'outcome unknown', 'attempt ' || attempt_id FROM email_unsettled WHERE outbox_id = $1
  UNION ALL
  SELECT held, 23, 'held for a person', 'attempt ' || attempt_id FROM email_unsettled WHERE outbox_id = $1 AND held IS NOT NULL
  UNION ALL
  SELECT decided, 24, 'decided without evidence', 'attempt ' || attempt_id FROM email_unsettled WHERE outbox_id = $1 AND decided IS NOT NULL
  UNION ALL
  SELECT since, 25, 'possible duplicate', why || ', attempt ' || attempt_id FROM email_duplicate WHERE outbox_id = $1
  UNION ALL
  SELECT proven, 26, 'proven duplicate', 'attempt ' || attempt_id FROM email_duplicate WHERE outbox_id = $1 AND proven IS NOT NULL
  UNION ALL
  SELECT at, 30, 'event ' || type, concat_ws(', ', payload #>> '{bounce,type}', payload #>> '{bounce,reason}', payload #>> '{complaint,type}', 'recipient ' || recipient_key, 'folded ' || utc_text(received))
  FROM email_event WHERE outbox_id = $1
  UNION ALL
  SELECT d.created, 40, 'dead letter', d.class || ': ' || d.reason FROM dead_letter AS d WHERE d.outbox_id = $1
  UNION ALL
  SELECT l.at, 41, l.action, concat_ws(', ', 'by ' || l.by_whom, l.why) FROM audit_log AS l WHERE l.detail ->> 'outbox_id' = $1::text
  UNION ALL
  SELECT s.created, 50, 'suppression', concat_ws(', ', s.reason, 'recipient ' || s.recipient_key, 'tenant ' || s.tenant, 'lane ' || s.lane, 'until ' || utc_text(s.expires))
  FROM suppression AS s WHERE s.recipient_key = ANY (ARRAY(SELECT a.key FROM address AS a))
  UNION ALL
  SELECT g.at, 51, 'suppression lifted', concat_ws(', ', g.reason, 'recipient ' || g.recipient_key, 'by ' || g.by_whom, g.why)
  FROM suppression_log AS g WHERE g.recipient_key = ANY (ARRAY(SELECT a.key FROM address AS a))
  UNION ALL
  SELECT o.changed, 60, 'state ' || o.state, concat_ws(', ', o.reason, o.attempts || ' attempts', 'redriven ' || nullif(o.redrives, 0) || ' times') FROM own AS o
  UNION ALL
  SELECT purged, 62, 'contents removed', NULL FROM own WHERE purged IS NOT NULL
  UNION ALL
  SELECT greatest(f.accepted_at, f.delivered_at, f.delayed_at, f.rejected_at, f.rendering_failed_at, f.bounced_at, f.complained_at, f.opened_at, f.clicked_at, f.unsubscribed_at), 61,
    'facts', concat_ws(', ', 'recipient ' || f.recipient_key, 'accepted ' || utc_text(f.accepted_at), 'delayed ' || utc_text(f.delayed_at), 'delivered ' || utc_text(f.delivered_at),
      'bounced ' || utc_text(f.bounced_at) || ' (' || concat_ws(', ', f.bounce_type, f.bounce_reason, f.bounce_diagnostic) || ')',
      'rejected ' || utc_text(f.rejected_at), 'rendering failed ' || utc_text(f.rendering_failed_at),
      'complained ' || utc_text(f.complained_at) || coalesce(' (' || f.complaint_type || ')', ''),
      'opened ' || utc_text(f.opened_at), 'clicked ' || utc_text(f.clicked_at), 'unsubscribed ' || utc_text(f.unsubscribed_at))
  FROM recipient_outcome AS f WHERE f.outbox_id = $1
  UNION ALL
  SELECT l.started, 70, 'call under way', 'attempt ' || l.attempt_id || ', lease until ' || utc_text(l.expires)
  FROM email_outbox AS o JOIN email_lease AS l ON l.attempt_id = o.attempt_id WHERE o.id = $1
  UNION ALL
  SELECT w.due, 80, 'wakes up', w.why FROM email_due AS w WHERE w.id = $1
  UNION ALL
  SELECT NULL, 90, 'held by a pause', concat_ws(', ', p.scope || ' ' || p.value, 'by ' || p.who, 'since ' || utc_text(p.since), 'until ' || utc_text(p.until), p.reason)
  FROM own AS o
  JOIN pause AS p ON (p.until IS NULL OR p.until > statement_timestamp()) AND (p.scope = 'account'
    OR (p.scope = 'tenant' AND lower(p.value) = lower(o.tenant)) OR (p.scope = 'lane' AND lower(p.value) = o.lane)
    OR (p.scope = 'sender' AND lower(p.value) IN (lower(o.sender), lower(split_part(o.sender, '@', 2))))
    OR (p.scope = 'template' AND lower(p.value) IN (lower(o.template), lower(o.tenant || '/' || o.template))))
  WHERE o.state = 'pending'
  UNION ALL
  SELECT NULL, 91, 'held by the circuit', concat_ws(', ', r.scope, 'open since ' || utc_text(r.open_since), r.failing_reason)
  FROM own AS o JOIN send_rate AS r ON r.open_since IS NOT NULL WHERE o.state = 'pending'
)
SELECT utc_text(at) AS at, what, nullif(detail, '') AS detail FROM story ORDER BY story.at NULLS LAST, step
