-- The evidence about these recipients, of the raw payload only whom the mail went to and whom a complaint names. $1 recipient key text[].
SELECT e.event_id, e.recipient_key, e.type, e.at, e.tenant, e.outbox_id,
  (e.payload - 'raw') || jsonb_build_object('raw', jsonb_build_object(
    'complaint', e.payload #> '{raw,complaint}', 'mail', jsonb_build_object('destination', e.payload #> '{raw,mail,destination}'))) AS payload
FROM email_event AS e
WHERE e.recipient_key = ANY ($1::text[]) AND e.type IN ('bounced', 'complained', 'unsubscribed');
