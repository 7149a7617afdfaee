-- Puts a heartbeat a partition into the feed that says that all suppressions were told again before it. $1 keys text[].
INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload)
SELECT 'suppressions', k.key, 'heartbeat', jsonb_build_object('heartbeat', utc_text(clock_timestamp()), 'republished', true)
FROM unnest($1::text[]) AS k (key);
