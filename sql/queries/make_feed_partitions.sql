-- Makes the day partitions of the feed that are missing; returns how many. $1 days ahead int.
SELECT make_feed_partitions($1);
