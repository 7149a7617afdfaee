-- A page of dead letters, oldest first, with what their rows are now. $1 after id uuid, $2 class text or null, $3 reason text or null, $4 tenant text or null, $5 lane text or null, $6 outbox ids uuid[] or null, $7 at most int.
SELECT l.id, l.outbox_id, l.tenant, l.lane, l.class, l.reason, l.attempt_id, l.created, o.state, o.attempts, o.redrives, o.expires_at
FROM dead_letter AS l
LEFT JOIN LATERAL (
  SELECT o.state, o.attempts, o.redrives, o.expires_at FROM email_outbox AS o WHERE o.id = l.outbox_id OFFSET 0) AS o ON true
WHERE l.id > $1 AND ($2::text IS NULL OR l.class = $2) AND ($3::text IS NULL OR l.reason = $3) AND ($4::text IS NULL OR l.tenant = $4)
  AND ($5::text IS NULL OR l.lane = $5) AND ($6::uuid[] IS NULL OR l.outbox_id = ANY ($6))
ORDER BY l.id
LIMIT $7;
