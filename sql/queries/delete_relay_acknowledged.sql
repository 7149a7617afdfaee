-- Nothing of what Kafka had before polling began is left in the feed.
DELETE FROM relay_acknowledged
