-- Says of each id, in the order given, whether its row still waits to be sent. invisible: the transaction that wrote the pointer is not visible
-- yet, so neither is the row. absent: it is visible and the row is not there, so it was purged.
-- $1 ids uuid[], $2 writing transactions xid8[]
SELECT
  CASE
    WHEN o.state = 'pending' THEN 'pending'
    WHEN o.state IS NOT NULL THEN 'settled'
    WHEN pg_visible_in_snapshot(a.xid, pg_current_snapshot()) THEN 'absent'
    ELSE 'invisible'
  END AS presence
FROM unnest($1::uuid[], $2::xid8[]) WITH ORDINALITY AS a (id, xid, number)
LEFT JOIN LATERAL (SELECT o.state FROM email_outbox AS o WHERE o.id = a.id OFFSET 0) AS o ON true
ORDER BY a.number
