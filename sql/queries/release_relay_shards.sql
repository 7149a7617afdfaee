-- Gives shards back at once. $1 id: uuid, $2 shards: int[].
UPDATE relay_shard SET holder = NULL, expires = '-infinity' WHERE holder = $1 AND shard = ANY ($2::int[])
