-- Keeps what Kafka had of the feed when polling began. $1 snapshot: pg_snapshot text, $2 system id: text, $3 timeline: int.
INSERT INTO relay_acknowledged (snapshot, system_id, timeline) VALUES ($1::text::pg_snapshot, $2, $3)
ON CONFLICT (only_one) DO UPDATE SET snapshot = excluded.snapshot, system_id = excluded.system_id, timeline = excluded.timeline
