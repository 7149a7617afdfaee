-- Attempts that only their events know (a failover forgot them): number 0, accepted; the new ones are looked at by settle_ambiguous until their rows are in no sender's hands. $1 attempt id uuid[], $2 outbox id uuid[], $3 provider message id text[], $4 at timestamptz[].
WITH forgotten AS (
  INSERT INTO email_attempt AS a (id, outbox_id, number, finished, outcome, provider_message_id, reason)
  SELECT DISTINCT ON (n.id) n.id, n.outbox_id, 0, n.at, 'accepted', n.provider_message_id, 'known by its events alone'
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[]) AS n (id, outbox_id, provider_message_id, at)
  ORDER BY n.id, n.at
  ON CONFLICT (id) DO UPDATE SET finished = least(a.finished, excluded.finished),
    provider_message_id = coalesce(a.provider_message_id, excluded.provider_message_id)
  WHERE a.number = 0
  RETURNING a.id, a.outbox_id, xmax = 0 AS is_new
)
INSERT INTO email_unsettled (attempt_id, outbox_id, decided)
SELECT f.id, f.outbox_id, clock_timestamp() FROM forgotten AS f WHERE f.is_new
ON CONFLICT (attempt_id) DO NOTHING;
