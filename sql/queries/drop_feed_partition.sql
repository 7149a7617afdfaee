-- Drops the oldest day partition of the feed if it may go: dropped, none, unconfirmed or busy. $1 slot text, $2 older than interval.
SELECT drop_feed_partition($1, $2);
