-- Outcomes of messages that are not as they were rebuilt; since: the youngest time in which both differ.
SELECT CASE WHEN l.outbox_id IS NULL THEN 'missing' WHEN r.outbox_id IS NULL THEN 'surplus' ELSE 'different' END AS what,
  coalesce(l.recipient_key, r.recipient_key) AS recipient_key,
  greatest(
    CASE WHEN l.accepted_at IS DISTINCT FROM r.accepted_at THEN least(l.accepted_at, r.accepted_at) END,
    CASE WHEN l.delivered_at IS DISTINCT FROM r.delivered_at THEN least(l.delivered_at, r.delivered_at) END,
    CASE WHEN l.delayed_at IS DISTINCT FROM r.delayed_at THEN least(l.delayed_at, r.delayed_at) END,
    CASE WHEN l.rejected_at IS DISTINCT FROM r.rejected_at THEN least(l.rejected_at, r.rejected_at) END,
    CASE WHEN l.rendering_failed_at IS DISTINCT FROM r.rendering_failed_at THEN least(l.rendering_failed_at, r.rendering_failed_at) END,
    CASE WHEN l.opened_at IS DISTINCT FROM r.opened_at THEN least(l.opened_at, r.opened_at) END,
    CASE WHEN l.clicked_at IS DISTINCT FROM r.clicked_at THEN least(l.clicked_at, r.clicked_at) END,
    CASE WHEN l.unsubscribed_at IS DISTINCT FROM r.unsubscribed_at THEN least(l.unsubscribed_at, r.unsubscribed_at) END,
    CASE WHEN (l.bounced_at, l.bounce_event_id, l.bounce_type, l.bounce_reason, l.bounce_diagnostic)
        IS DISTINCT FROM (r.bounced_at, r.bounce_event_id, r.bounce_type, r.bounce_reason, r.bounce_diagnostic)
      THEN least(l.bounced_at, r.bounced_at) END,
    CASE WHEN (l.complained_at, l.complaint_event_id, l.complaint_type)
        IS DISTINCT FROM (r.complained_at, r.complaint_event_id, r.complaint_type)
      THEN least(l.complained_at, r.complained_at) END) AS since,
  coalesce(l.outbox_id, r.outbox_id)::text AS row
FROM recipient_outcome AS l
FULL JOIN rebuilt_outcome AS r ON l.outbox_id = r.outbox_id AND l.recipient_key = r.recipient_key
WHERE l IS DISTINCT FROM r
  AND NOT EXISTS (SELECT FROM rebuilt_meanwhile AS m WHERE m.recipient_key = coalesce(l.recipient_key, r.recipient_key));
