-- Says that a relay lives, and renews the leases of its shards that have not run out. $1 id: uuid, $2 lease in seconds: float8,
-- $3 number of shards: int. The shards that it holds, how many there are, how many nobody holds, how many relays live.
-- A time further ahead than it is ever set means that the server's clock was set back: it counts as past.
WITH alive AS (
  INSERT INTO relay_poller (id, expires) VALUES ($1, clock_timestamp() + make_interval(secs => $2))
  ON CONFLICT (id) DO UPDATE SET expires = excluded.expires
), renewed AS (
  UPDATE relay_shard SET expires = clock_timestamp() + make_interval(secs => $2)
  WHERE holder = $1 AND expires > clock_timestamp() AND shards = $3
  RETURNING shard
)
SELECT
  ARRAY(SELECT shard FROM renewed ORDER BY shard) AS held,
  (SELECT count(*)::int FROM relay_shard WHERE shards = $3) AS known,
  (SELECT count(*)::int FROM relay_shard
    WHERE expires <= clock_timestamp() OR expires > clock_timestamp() + make_interval(secs => 2 * $2) AND holder <> $1) AS free,
  (SELECT 1 + count(*)::int FROM relay_poller
    WHERE id <> $1 AND expires > clock_timestamp() AND expires <= clock_timestamp() + make_interval(secs => 2 * $2)) AS pollers
