-- Takes the outcomes of these messages and recipients away, to be written anew in the same transaction. $1 outbox id uuid[], $2 recipient key text[].
DELETE FROM recipient_outcome AS o
USING unnest($1::uuid[], $2::text[]) AS m (outbox_id, recipient_key)
WHERE o.outbox_id = m.outbox_id AND o.recipient_key = m.recipient_key;
