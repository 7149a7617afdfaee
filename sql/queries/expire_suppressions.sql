-- Removes suppressions whose time is over, which announces what is left of them; returns how many. $1 at most int.
WITH over AS (
  SELECT s.recipient_key, s.tenant, s.lane, s.reason
  FROM suppression AS s
  -- Both locks or none, without waiting: whoever holds the recipient may be about to extend the row.
  JOIN suppressed_recipient AS r USING (recipient_key)
  WHERE s.expires <= now()
  ORDER BY s.recipient_key COLLATE "C", s.tenant COLLATE "C", s.lane, s.reason
  LIMIT $1
  FOR UPDATE OF r, s SKIP LOCKED
),
gone AS (
  DELETE FROM suppression AS s USING over AS o
  WHERE (s.recipient_key, s.tenant, s.lane, s.reason) = (o.recipient_key, o.tenant, o.lane, o.reason)
  RETURNING s.recipient_key
)
SELECT count(*) FROM gone;
