-- Whether a relay in polling mode holds a shard of the keys.
SELECT EXISTS (SELECT FROM relay_shard WHERE expires > clock_timestamp())
