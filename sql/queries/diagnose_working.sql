-- Seconds since a relay of this slot stored a position and since the scheduler put a heartbeat into the feed; null: never. $1 slot: text.
SELECT
  (SELECT extract(epoch FROM clock_timestamp() - stored)::float8 FROM relay_checkpoint WHERE slot = $1) AS checkpoint_age_s,
  (SELECT extract(epoch FROM clock_timestamp() - next_at)::float8 FROM scheduler_duty WHERE name = 'heartbeat' AND isfinite(next_at)) AS heartbeat_age_s
