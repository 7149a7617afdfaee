-- Takes shards that nobody holds. $1 id: uuid, $2 lease in seconds: float8, $3 number of shards: int, $4 how many at most: int.
-- A time further ahead than it is ever set means that the server's clock was set back.
UPDATE relay_shard SET holder = $1, expires = clock_timestamp() + make_interval(secs => $2)
WHERE shard IN (
  SELECT shard FROM relay_shard
  WHERE shards = $3 AND (expires <= clock_timestamp() OR expires > clock_timestamp() + make_interval(secs => 2 * $2))
  ORDER BY shard LIMIT $4 FOR UPDATE SKIP LOCKED)
RETURNING shard
