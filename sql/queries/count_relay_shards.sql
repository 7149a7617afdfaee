-- How many shards there are, and how many of them are held.
SELECT count(*)::int AS shards, (count(*) FILTER (WHERE expires > clock_timestamp()))::int AS held FROM relay_shard
