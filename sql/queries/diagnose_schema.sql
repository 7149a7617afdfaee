-- Whether the tables of mailstreams are there and their migrations can be read, and how far the feed is prepared, one row.
SELECT
  to_regclass('schema_migration') IS NOT NULL AND to_regclass('email_outbox') IS NOT NULL AS there,
  has_table_privilege(to_regclass('schema_migration'), 'SELECT') AS migrations_readable,
  has_table_privilege(to_regclass('outbox_feed_default'), 'SELECT') AS default_readable,
  to_regprocedure('recipient_salt_fingerprint()') IS NOT NULL AS fingerprint_there,
  (SELECT count(*) FROM generate_series(0, 3) AS n
   WHERE to_regclass(format('outbox_feed_%s', to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + n, 'YYYYMMDD'))) IS NOT NULL)::int AS partitions_ahead
