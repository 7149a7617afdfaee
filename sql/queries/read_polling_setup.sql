-- What polling needs. $1 slot of the relay in wal mode: text.
SELECT
  EXISTS (
    SELECT FROM pg_replication_slots
    WHERE slot_name = $1 AND database = current_database() AND active
  ) AS streaming,
  (SELECT cache_size FROM pg_sequences
    WHERE format('%I.%I', schemaname, sequencename)::regclass = 'outbox_feed_seq'::regclass) AS cached,
  -- Of the parent: valid once every partition has its own.
  coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('outbox_feed_seq_idx')), false) AS index
