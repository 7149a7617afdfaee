-- What Kafka had of the feed when polling began, if that was in this history of this cluster. $1 system id: text, $2 timeline: int.
SELECT snapshot::text, timeline FROM relay_acknowledged WHERE system_id = $1 AND timeline = $2
