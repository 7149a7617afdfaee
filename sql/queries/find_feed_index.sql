-- Whether the feed has the index for polling, or a part of it.
SELECT to_regclass('outbox_feed_seq_idx') IS NOT NULL
