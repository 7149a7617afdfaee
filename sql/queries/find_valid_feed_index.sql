-- Whether every partition of the feed has its part of the index for polling, ready to be read by.
SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('outbox_feed_seq_idx')), false)
