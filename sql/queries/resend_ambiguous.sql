-- Puts ambiguous rows back to 'pending' whose policy says so, with a wake-up; each may be a duplicate, and is written down as one. Returns how many by policy. $1 resend after interval, $2 resend-when-silent after interval, $3 the most attempts int, $4 event types that prove acceptance text[], $5 longest time between two reports of the intake interval, $6 at most int.
-- Every look at the outbox goes by single ids: it may be large, and the planner does not know the parameters.
-- Silence is known (docs/decisions/0010) where both stages of the intake have watched from the call on until now, without a
-- break, without trouble and without a process that vanished; where of the accepted calls next before this one none lacks its
-- event; and where an accepted call after it has one.
WITH watch AS MATERIALIZED (
  SELECT w.stage,
    range_agg(tstzrange(w.since, w.reported + $5::interval)) AS spans,
    greatest(max(w.trouble), max(w.reported) FILTER (WHERE NOT w.ended AND w.reported + $5::interval < now())) AS trouble
  FROM intake_watch AS w
  GROUP BY w.stage
),
waiting AS MATERIALIZED (
  SELECT u.attempt_id, u.since, o.id, o.changed, o.on_ambiguous, least(a.started, u.since) AS started
  FROM email_unsettled AS u
  CROSS JOIN LATERAL (
    SELECT o.id, o.changed, o.on_ambiguous FROM email_outbox AS o
    WHERE o.id = u.outbox_id AND o.state = 'ambiguous' AND o.on_ambiguous <> 'hold' AND o.attempts < $3
      AND coalesce(o.expires_at > now(), true) OFFSET 0) AS o
  LEFT JOIN email_attempt AS a ON a.id = u.attempt_id
  WHERE u.held IS NULL AND u.decided IS NULL
    AND u.since <= now() - CASE o.on_ambiguous WHEN 'resend' THEN $1::interval ELSE $2::interval END
),
seen AS MATERIALIZED (
  SELECT w.id, w.changed, w.on_ambiguous
  FROM waiting AS w
  WHERE (w.on_ambiguous = 'resend' OR (
      (SELECT count(*) FROM watch AS s
       WHERE s.spans @> tstzrange(w.started, now()) AND coalesce(s.trouble + $5::interval < w.started, true)) = 2
      AND NOT EXISTS (
        SELECT FROM (SELECT a.outbox_id, a.outcome FROM email_attempt AS a WHERE a.id < w.attempt_id ORDER BY a.id DESC LIMIT 50) AS a
        WHERE a.outcome = 'accepted' AND (
          SELECT true FROM email_event AS e WHERE e.outbox_id = a.outbox_id AND e.type = ANY ($4::text[]) LIMIT 1) IS NULL)
      AND EXISTS (
        SELECT FROM (SELECT a.outbox_id, a.outcome FROM email_attempt AS a WHERE a.id > w.attempt_id ORDER BY a.id LIMIT 50) AS a
        WHERE a.outcome = 'accepted' AND (
          SELECT true FROM email_event AS e WHERE e.outbox_id = a.outbox_id AND e.type = ANY ($4::text[]) LIMIT 1))))
    -- What there is evidence of is settled, not sent again; what has a younger unknown call waits for the bound of that one.
    AND (SELECT true FROM email_event AS e WHERE e.outbox_id = w.id AND e.type = ANY ($4::text[]) LIMIT 1) IS NULL
    AND (SELECT true FROM email_attempt AS a WHERE a.outbox_id = w.id AND a.outcome = 'accepted' LIMIT 1) IS NULL
    AND NOT EXISTS (
      SELECT FROM email_unsettled AS other
      WHERE other.outbox_id = w.id AND other.decided IS NULL AND other.attempt_id <> w.attempt_id
        AND (other.since, other.attempt_id) > (w.since, w.attempt_id))
  ORDER BY w.since
  LIMIT $6
),
-- A row that changed since the snapshot may be ambiguous by a younger call: it is left for later.
overdue AS MATERIALIZED (
  SELECT s.id, s.on_ambiguous
  FROM seen AS s
  CROSS JOIN LATERAL (
    SELECT FROM email_outbox AS o
    WHERE o.id = s.id AND o.state = 'ambiguous' AND o.changed = s.changed FOR NO KEY UPDATE SKIP LOCKED) AS o
),
again AS (
  UPDATE email_outbox AS o
  SET state = 'pending', changed = clock_timestamp(),
    reason = 'sent again by its policy ' || o.on_ambiguous || ': whether SES took the call before is not known'
  FROM overdue AS d
  WHERE o.id = d.id
  RETURNING o.id, o.tenant, o.lane, o.on_ambiguous
),
noted AS (
  UPDATE email_unsettled AS u SET decided = clock_timestamp() FROM again AS g WHERE u.outbox_id = g.id AND u.decided IS NULL
  RETURNING u.attempt_id, g.id, g.tenant, g.on_ambiguous
),
possible AS (
  INSERT INTO email_duplicate (attempt_id, outbox_id, tenant, why)
  SELECT n.attempt_id, n.id, n.tenant, n.on_ambiguous FROM noted AS n
  ON CONFLICT (attempt_id) DO NOTHING
),
due AS (
  INSERT INTO email_due AS d (id, due, tenant, lane, why)
  SELECT g.id, clock_timestamp(), g.tenant, g.lane, 'retry' FROM again AS g
  ON CONFLICT (id) DO UPDATE SET due = least(d.due, excluded.due)
)
SELECT
  (SELECT count(*) FROM again WHERE on_ambiguous = 'resend') AS resent,
  (SELECT count(*) FROM again WHERE on_ambiguous = 'resend-when-silent') AS resent_when_silent;
