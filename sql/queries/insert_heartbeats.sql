-- Puts one heartbeat a partition of the suppressions into the feed, for the one replica that has the duty this time; returns how many. $1 keys text[], $2 next after interval.
-- A time further ahead than it is ever set means that the server's clock was set back.
WITH duty AS (
  INSERT INTO scheduler_duty AS d (name, next_at) VALUES ('heartbeat', clock_timestamp() + $2::interval)
  ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at
  WHERE d.next_at <= clock_timestamp() OR d.next_at > clock_timestamp() + $2::interval + interval '1 second'
  RETURNING true
),
beats AS (
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload)
  SELECT 'suppressions', k.key, 'heartbeat', jsonb_build_object('heartbeat', utc_text(clock_timestamp()))
  FROM duty, unnest($1::text[]) AS k (key)
  RETURNING type
)
SELECT count(*) FROM beats;
