-- Grants permits of the shared rate to messages in the order given, each at its cost, which is at least its recipients
-- (GCRA): those are granted whose slots begin within $3 seconds after $4 from now. No row comes back where the rate of the scope is not known.
-- messages: how many of them, from the first; permits: their costs; start_at: when the first slot begins; wait: seconds
-- until asking again makes sense, where nothing was granted. Takers wait for each other.
-- was_ahead: next_free was later than any grant can have moved it, since the server's clock was set back or somebody wrote
-- it: it counts as now. A grant ends at most lead + window (less than 2 s) and one message ahead, whose cost is at most
-- 50 recipients * 2; the rest is for a rate that was raised meanwhile.
-- $1 scope text, $2 costs float8[], $3 window in seconds float8, $4 lead in seconds float8
WITH rate AS MATERIALIZED (
  SELECT r.scope, r.per_second, r.next_free FROM send_rate AS r WHERE r.scope = $1 FOR NO KEY UPDATE
),
-- The clock is read once the lock is held.
moment AS MATERIALIZED (
  SELECT r.*, clock_timestamp() AS now FROM rate AS r
),
bounded AS MATERIALIZED (
  SELECT m.scope, m.per_second, m.now, NOT is_possible AS was_ahead, CASE WHEN is_possible THEN m.next_free ELSE m.now END AS next_free
  FROM moment AS m
  CROSS JOIN LATERAL (SELECT m.next_free <= m.now + make_interval(secs => 10 + 100 / m.per_second) AS is_possible) AS p
),
opened AS MATERIALIZED (
  SELECT m.*, greatest(m.next_free, m.now + make_interval(secs => $4::float8)) AS start_at,
    m.now + make_interval(secs => $4::float8 + $3::float8) AS closes_at
  FROM bounded AS m
),
asked AS MATERIALIZED (
  SELECT a.cost, sum(a.cost) OVER (ORDER BY a.number) - a.cost AS before
  FROM unnest($2::float8[]) WITH ORDINALITY AS a (cost, number)
),
granted AS MATERIALIZED (
  SELECT o.*, (
      SELECT count(*) FROM asked AS a WHERE o.start_at + make_interval(secs => a.before / o.per_second) <= o.closes_at
    ) AS messages, (
      SELECT coalesce(sum(a.cost), 0) FROM asked AS a
      WHERE o.start_at + make_interval(secs => a.before / o.per_second) <= o.closes_at
    ) AS permits
  FROM opened AS o
),
moved AS (
  UPDATE send_rate AS s
  SET next_free = g.start_at + make_interval(secs => g.permits / g.per_second), granted = s.granted + ceil(g.permits)::bigint
  FROM granted AS g WHERE s.scope = g.scope AND g.permits > 0
)
SELECT g.messages::int, g.permits::float8, g.per_second, extract(epoch FROM g.start_at)::float8 AS start_at,
  extract(epoch FROM g.now)::float8 AS server_now,
  greatest(extract(epoch FROM g.start_at - g.closes_at), 0)::float8 AS wait, g.was_ahead
FROM granted AS g
