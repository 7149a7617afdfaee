-- The message of each event, by attempt tag, else outbox tag, else provider message id; only if the recipient is one of its. $1 n int[], $2 event id text[], $3 recipient key text[], $4 attempt id uuid[], $5 outbox id uuid[], $6 provider message id text[].
WITH event AS (
  SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::text[])
    AS e (n, event_id, recipient_key, attempt_id, outbox_id, provider_message_id)
),
-- While a call is under way its attempt stands in the lease, afterwards in email_attempt.
by_attempt AS (
  SELECT e.n, a.outbox_id, a.id AS attempt_id FROM event AS e JOIN email_attempt AS a ON a.id = e.attempt_id
  UNION
  SELECT e.n, l.id, l.attempt_id FROM event AS e JOIN email_lease AS l ON l.attempt_id = e.attempt_id
  UNION
  SELECT e.n, u.outbox_id, u.attempt_id FROM event AS e JOIN email_unsettled AS u ON u.attempt_id = e.attempt_id
),
tagged AS (
  SELECT b.n, 1 AS rank, b.outbox_id, b.attempt_id, false AS forgotten FROM by_attempt AS b
  UNION ALL
  SELECT e.n, 2, e.outbox_id, e.attempt_id, e.attempt_id IS NOT NULL AND NOT EXISTS (SELECT FROM by_attempt AS b WHERE b.n = e.n)
  FROM event AS e WHERE e.outbox_id IS NOT NULL
),
untagged AS (
  SELECT e.n, e.provider_message_id FROM event AS e
  WHERE e.provider_message_id IS NOT NULL AND NOT EXISTS (SELECT FROM tagged AS t WHERE t.n = e.n)
),
known AS (
  SELECT * FROM tagged
  UNION ALL
  SELECT u.n, 3, a.outbox_id, a.id, false
  FROM untagged AS u JOIN email_attempt AS a ON a.provider_message_id = u.provider_message_id
  UNION ALL
  SELECT u.n, 4, other.outbox_id, other.attempt_id, false
  FROM untagged AS u
  CROSS JOIN LATERAL (
    SELECT x.outbox_id, x.attempt_id FROM email_event AS x
    WHERE x.provider_message_id = u.provider_message_id AND x.outbox_id IS NOT NULL
    ORDER BY x.attempt_id LIMIT 1) AS other
),
placed AS (
  SELECT DISTINCT ON (e.n) e.n, o.id AS outbox_id, o.tenant, k.attempt_id, k.forgotten
  FROM event AS e
  JOIN known AS k ON k.n = e.n
  JOIN email_outbox AS o ON o.id = k.outbox_id
  WHERE o.recipient_key = e.recipient_key OR e.recipient_key = ANY (o.cc_keys) OR e.recipient_key = ANY (o.bcc_keys)
  ORDER BY e.n, k.rank, k.attempt_id
)
SELECT e.n, p.outbox_id, p.tenant, coalesce(p.attempt_id, e.attempt_id) AS attempt_id, coalesce(p.forgotten, false) AS forgotten,
  EXISTS (SELECT FROM email_event AS s WHERE s.event_id = e.event_id AND s.recipient_key = e.recipient_key AND s.outbox_id IS NULL) AS stored_unmatched
FROM event AS e
LEFT JOIN placed AS p ON p.n = e.n
ORDER BY e.n;
