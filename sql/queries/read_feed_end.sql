-- The number that the feed's sequence gave last, read of the sequence itself: no transaction can give it back.
SELECT last_value - (NOT is_called)::int FROM outbox_feed_seq
