-- Makes the shards, held by nobody. $1 how many: int.
INSERT INTO relay_shard (shard, shards) SELECT n, $1 FROM generate_series(0, $1 - 1) AS n
