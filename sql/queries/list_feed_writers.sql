-- Transactions that have written into the feed, or are about to, and have not ended: each holds its lock from before it draws a sequence
-- number until its rows are seen. Prepared ones have a name of their own, -1/ and their transaction id.
SELECT DISTINCT l.virtualtransaction AS name
FROM pg_locks AS l
WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.relation = 'outbox_feed'::regclass
    OR l.relation IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'outbox_feed'::regclass))
