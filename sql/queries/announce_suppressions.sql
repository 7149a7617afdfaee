-- Puts the suppressions of these recipients, as they are, into the feed again. $1 recipient key text[], $2 sequence bigint that a reader holds and that the new ones have to be behind: after a failover the sequence may have gone back, and is drawn forward, 100000 at most at a time.
WITH forward AS MATERIALIZED (
  SELECT count(nextval('outbox_feed_seq')) AS drawn
  FROM generate_series(1, least($2 - (SELECT last_value FROM outbox_feed_seq), 100000)))
SELECT announce_suppressions($1) FROM forward WHERE drawn >= 0;
