-- What a relay in polling mode needs and does. $1 slot of the relay in wal mode: text.
SELECT
  coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('outbox_feed_seq_idx')), false) AS index,
  (SELECT cache_size FROM pg_sequences
    WHERE format('%I.%I', schemaname, sequencename)::regclass = 'outbox_feed_seq'::regclass) AS cached,
  (SELECT count(*) FROM relay_shard) AS shards,
  (SELECT count(*) FROM relay_shard WHERE expires > clock_timestamp()) AS held,
  EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND database = current_database()) AS slot,
  EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND database = current_database() AND active) AS streaming
