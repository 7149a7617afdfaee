-- Removes rows of the feed that lie in no day partition; returns how many. $1 slot text, $2 older than interval, $3 at most int.
SELECT purge_feed_default($1, $2, $3);
