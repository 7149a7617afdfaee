-- The rates that senders share and the circuits beside them; ages in seconds. No parameters.
SELECT r.scope, r.per_second, extract(epoch FROM clock_timestamp() - r.read_at)::float8 AS read_age, r.failing, r.failing_reason,
  extract(epoch FROM clock_timestamp() - r.open_since)::float8 AS open_age, extract(epoch FROM r.probe_at - clock_timestamp())::float8 AS probe_in
FROM send_rate AS r
ORDER BY r.scope
