-- Grants permits of the shared rate to messages in the order given, each at its cost, which is at least its recipients
-- (GCRA): those are granted whose slots begin within $3 seconds after $4 from now. No row comes back where the rate of the scope is not known.
-- Takes down how calls ended since the last question, and keeps the circuit of all senders by it: open after 20 failures
-- in a row over at least 10 messages, closed once SES is reached. While it is open one message is granted at a time, a
-- probe, at growing intervals.
-- messages: how many of them, from the first; permits: their costs; start_at: when the first slot begins; wait: seconds
-- until asking again makes sense, where nothing was granted. Takers wait for each other.
-- was_ahead: next_free was later than any grant can have moved it, since the server's clock was set back or somebody wrote
-- it: it counts as now. A grant ends at most lead + window (less than 2 s) and one message ahead, whose cost is at most
-- 50 recipients * 2; the rest is for a rate that was raised meanwhile.
-- An answer of SES counts where it came after the first failure in the row, and once the circuit is open, where its call began after that:
-- who has nothing to ask for tells late.
-- $1 scope text, $2 costs float8[], $3 window in seconds float8, $4 lead in seconds float8; what is told: $5 how long ago SES
-- was reached float8 (null: not), $6 messages of the calls that failed after that uuid[], $7 why text, $8 nothing of them was
-- written bool, $9 number of a probe that was not made bigint (null: none), $15 number of a probe that failed bigint; intervals of probes in seconds float8: $10 first, $11 longest, $12 longest where
-- nothing was written, $13 time for an answer; $14 how long ago the call began that reached SES float8
WITH rate AS MATERIALIZED (
  SELECT r.* FROM send_rate AS r WHERE r.scope = $1 FOR NO KEY UPDATE
),
-- The clock is read once the lock is held.
moment AS MATERIALIZED (
  SELECT r.*, clock_timestamp() AS now FROM rate AS r
),
told AS MATERIALIZED (
  SELECT m.*, r.has_reached, f.failing AS now_failing, f.messages AS now_messages, f.is_unwritten AS now_unwritten,
    CASE WHEN f.failing > 0 THEN coalesce($7::text, m.failing_reason) END AS now_reason,
    CASE WHEN NOT r.has_reached THEN m.open_since END AS was_open,
    CASE WHEN f.failing > 0 THEN coalesce(CASE WHEN NOT r.has_reached THEN m.failing_since END, m.now) END AS now_failing_since,
    f.failing >= 20 AND cardinality(f.messages) >= 10 AS is_tripped
  FROM moment AS m
  CROSS JOIN LATERAL (
    SELECT $5::float8 IS NOT NULL AND CASE
      WHEN m.open_since IS NOT NULL THEN statement_timestamp() - make_interval(secs => $14::float8) > m.open_since
      WHEN m.failing > 0 THEN statement_timestamp() - make_interval(secs => $5::float8) > m.failing_since
      ELSE true END AS has_reached) AS r
  CROSS JOIN LATERAL (
    SELECT CASE WHEN r.has_reached THEN 0 ELSE m.failing END + cardinality($6::uuid[]) AS failing,
      (CASE WHEN r.has_reached THEN true ELSE m.failing_unwritten END) AND $8::bool AS is_unwritten,
      CASE
        WHEN cardinality($6::uuid[]) > 0 THEN ARRAY(
          SELECT DISTINCT e FROM unnest(CASE WHEN r.has_reached THEN '{}' ELSE m.failing_messages END || $6::uuid[]) AS e LIMIT 20)
        WHEN r.has_reached THEN '{}'
        ELSE m.failing_messages
      END AS messages) AS f
),
bounded AS MATERIALIZED (
  SELECT t.*, coalesce($9::bigint = t.probe_number, false) AS is_unused, coalesce($15::bigint = t.probe_number, false) AS is_failed,
    NOT is_possible AS was_ahead, CASE WHEN is_possible THEN t.next_free ELSE t.now END AS free_at,
    coalesce(t.was_open, CASE WHEN t.is_tripped THEN t.now END) AS now_open,
    least($10::float8 * 2.0 ^ least(t.probes, 30), CASE WHEN t.now_unwritten THEN $12::float8 ELSE $11::float8 END)
      * (0.75 + random() / 4) AS interval_s
  FROM told AS t
  CROSS JOIN LATERAL (SELECT t.next_free <= t.now + make_interval(secs => 10 + 100 / t.per_second) AS is_possible) AS p
),
-- From which moment on the next probe may be: its failure counts from now, one that is under way is waited for, whatever other calls end.
-- The number of a probe changes with all that happens to it, so that what is told twice counts once.
tried AS MATERIALIZED (
  SELECT b.*,
    CASE
      WHEN b.now_open IS NULL THEN NULL
      WHEN b.was_open IS NULL THEN b.now + make_interval(secs => b.interval_s)
      WHEN b.is_unused THEN b.now
      WHEN b.is_failed THEN b.now + make_interval(secs => b.interval_s)
      ELSE b.probe_at
    END AS now_probe_at
  FROM bounded AS b
),
opened AS MATERIALIZED (
  SELECT t.*, greatest(t.free_at, t.now + make_interval(secs => $4::float8)) AS start_at,
    t.now + make_interval(secs => $4::float8 + $3::float8) AS closes_at,
    CASE WHEN t.now_open IS NULL THEN 1000000 WHEN t.now_probe_at <= t.now THEN 1 ELSE 0 END AS most
  FROM tried AS t
),
asked AS MATERIALIZED (
  SELECT a.cost, a.number, sum(a.cost) OVER (ORDER BY a.number) - a.cost AS before
  FROM unnest($2::float8[]) WITH ORDINALITY AS a (cost, number)
),
granted AS MATERIALIZED (
  SELECT o.*, g.messages, g.permits, p.is_probe, o.probe_number + p.is_probe::int + (o.is_unused OR o.is_failed)::int AS now_probe_number
  FROM opened AS o
  CROSS JOIN LATERAL (
    SELECT count(*) AS messages, coalesce(sum(a.cost), 0) AS permits
    FROM asked AS a
    WHERE a.number <= o.most AND o.start_at + make_interval(secs => a.before / o.per_second) <= o.closes_at) AS g
  CROSS JOIN LATERAL (SELECT o.now_open IS NOT NULL AND g.messages > 0 AS is_probe) AS p
),
moved AS (
  UPDATE send_rate AS s
  SET next_free = CASE WHEN g.permits > 0 THEN g.start_at + make_interval(secs => g.permits / g.per_second) ELSE s.next_free END,
    granted = s.granted + ceil(g.permits)::bigint,
    failing = g.now_failing, failing_messages = g.now_messages, failing_unwritten = g.now_unwritten, failing_reason = g.now_reason,
    failing_since = g.now_failing_since,
    open_since = g.now_open,
    probes = CASE WHEN g.now_open IS NULL THEN 0 ELSE greatest(g.probes + g.is_probe::int - g.is_unused::int, 0) END,
    probe_number = g.now_probe_number,
    probe_at = CASE
      WHEN g.is_probe THEN g.now + make_interval(secs => $13::float8 + g.interval_s * 2)
      ELSE g.now_probe_at END
  FROM granted AS g
  WHERE s.scope = g.scope AND (g.permits > 0 OR cardinality($6::uuid[]) > 0 OR g.is_unused OR (g.has_reached AND g.failing > 0))
)
SELECT g.messages::int, g.permits::float8, g.per_second, extract(epoch FROM g.start_at)::float8 AS start_at,
  extract(epoch FROM g.now)::float8 AS server_now,
  greatest(extract(epoch FROM g.start_at - g.closes_at), extract(epoch FROM g.now_probe_at - g.now), 0)::float8 AS wait, g.was_ahead,
  g.now_failing AS failing, cardinality(g.now_messages) AS failing_messages, g.now_reason AS reason,
  extract(epoch FROM g.now_open)::float8 AS open_since, CASE WHEN g.is_probe THEN g.now_probe_number END AS probe, g.was_open IS NULL AND g.now_open IS NOT NULL AS has_opened
FROM granted AS g
