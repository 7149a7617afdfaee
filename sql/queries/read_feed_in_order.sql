-- Every row of the feed that the snapshot sees, in the order of its sequence, each column as PostgreSQL's text.
SELECT id::text, aggregatetype, aggregateid, type, payload::text, tracingspancontext, seq::text
FROM outbox_feed
ORDER BY outbox_feed.seq
