-- Adds to the facts of messages and recipients: the earliest of each time, one bounce and one complaint whole. $1 outbox id uuid[], $2 recipient key text[], $3 accepted, $4 delivered, $5 delayed, $6 rejected, $7 rendering failed, $8 opened, $9 clicked, $10 unsubscribed timestamptz[], $11 bounced timestamptz[], $12 bounce event id, $13 type, $14 reason, $15 diagnostic text[], $16 complained timestamptz[], $17 complaint event id, $18 type text[].
INSERT INTO recipient_outcome AS o (outbox_id, recipient_key, accepted_at, delivered_at, delayed_at, rejected_at, rendering_failed_at,
  opened_at, clicked_at, unsubscribed_at, bounced_at, bounce_event_id, bounce_type, bounce_reason, bounce_diagnostic,
  complained_at, complaint_event_id, complaint_type)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[],
  $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::text[], $13::text[], $14::text[], $15::text[],
  $16::timestamptz[], $17::text[], $18::text[]) AS n (outbox_id, recipient_key)
ORDER BY outbox_id, recipient_key COLLATE "C"
ON CONFLICT (outbox_id, recipient_key) DO UPDATE SET
  accepted_at = least(o.accepted_at, excluded.accepted_at),
  delivered_at = least(o.delivered_at, excluded.delivered_at),
  delayed_at = least(o.delayed_at, excluded.delayed_at),
  rejected_at = least(o.rejected_at, excluded.rejected_at),
  rendering_failed_at = least(o.rendering_failed_at, excluded.rendering_failed_at),
  opened_at = least(o.opened_at, excluded.opened_at),
  clicked_at = least(o.clicked_at, excluded.clicked_at),
  unsubscribed_at = least(o.unsubscribed_at, excluded.unsubscribed_at),
  -- The same total order as BounceFact.rank: permanent before undetermined before transient, then the earliest, then the id.
  (bounced_at, bounce_event_id, bounce_type, bounce_reason, bounce_diagnostic) = (
    SELECT b.at, b.event_id, b.type, b.reason, b.diagnostic
    FROM (VALUES
      (o.bounced_at, o.bounce_event_id, o.bounce_type, o.bounce_reason, o.bounce_diagnostic),
      (excluded.bounced_at, excluded.bounce_event_id, excluded.bounce_type, excluded.bounce_reason, excluded.bounce_diagnostic))
      AS b (at, event_id, type, reason, diagnostic)
    ORDER BY array_position(ARRAY['permanent', 'undetermined', 'transient'], b.type), b.at, b.event_id COLLATE "C"
    LIMIT 1),
  (complained_at, complaint_event_id, complaint_type) = (
    SELECT c.at, c.event_id, c.type
    FROM (VALUES
      (o.complained_at, o.complaint_event_id, o.complaint_type),
      (excluded.complained_at, excluded.complaint_event_id, excluded.complaint_type)) AS c (at, event_id, type)
    ORDER BY c.at, c.event_id COLLATE "C"
    LIMIT 1);
