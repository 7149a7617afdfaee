-- What the relay needs from the server. $1 publication: text.
SELECT
  current_setting('wal_level') AS wal_level,
  to_regclass('relay_refused') IS NOT NULL AND to_regclass('relay_checkpoint') IS NOT NULL AS migrated,
  EXISTS (SELECT FROM pg_publication WHERE pubname = $1) AS publication,
  EXISTS (
    SELECT FROM pg_publication AS p JOIN pg_publication_rel AS r ON r.prpubid = p.oid
    WHERE p.pubname = $1 AND p.pubinsert AND p.pubviaroot AND r.prrelid = to_regclass('outbox_feed')
      AND r.prqual IS NULL
  ) AS publishes_feed
