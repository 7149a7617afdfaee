-- The relay's publication, no row if there is none. $1 publication: text, $2 slot: text.
-- younger: its rows in the catalogue are of transactions that the slot has not passed; null without a slot.
SELECT
  p.pubinsert AND p.pubviaroot AND r.prrelid IS NOT NULL AND r.prqual IS NULL AS publishes_feed,
  (SELECT least(age(p.xmin), coalesce(age(r.xmin), age(p.xmin))) <= age(s.catalog_xmin)
   FROM pg_replication_slots AS s WHERE s.slot_name = $2 AND s.catalog_xmin IS NOT NULL) AS younger
FROM pg_publication AS p LEFT JOIN pg_publication_rel AS r ON r.prpubid = p.oid AND r.prrelid = to_regclass('outbox_feed')
WHERE p.pubname = $1
