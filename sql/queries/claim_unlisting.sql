-- The next address to delete from the provider's list; not given out again for a minute, longer after each try.
WITH next AS (
  SELECT u.recipient_key FROM provider_unlisting AS u
  WHERE u.address IS NOT NULL AND u.due <= clock_timestamp()
  ORDER BY u.due LIMIT 1
  FOR UPDATE SKIP LOCKED
)
UPDATE provider_unlisting AS u
SET tries = u.tries + 1, due = clock_timestamp() + least(interval '1 minute' * power(2, least(u.tries, 10)), interval '1 hour')
FROM next WHERE u.recipient_key = next.recipient_key
RETURNING u.recipient_key, u.address, u.requested, u.tries;
