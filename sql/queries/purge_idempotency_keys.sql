-- Forgets answers under Idempotency-Keys, the oldest first. $1 older than interval, $2 at most int.
WITH gone AS (
  DELETE FROM idempotency_key AS k
  WHERE k.ctid = ANY (ARRAY(
    SELECT o.ctid FROM idempotency_key AS o WHERE o.created < clock_timestamp() - $1::interval ORDER BY o.created LIMIT $2 FOR UPDATE SKIP LOCKED))
  RETURNING 1
)
SELECT count(*)::int FROM gone;
