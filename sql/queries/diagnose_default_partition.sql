-- Whether the default partition of the feed has rows.
SELECT EXISTS (SELECT FROM outbox_feed_default)
