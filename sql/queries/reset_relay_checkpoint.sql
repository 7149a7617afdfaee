-- From now on no slot can be trusted: a relay in wal mode makes it anew and sends what is left in the feed.
-- $1 slot: text, $2 system id: text, $3 timeline: int.
INSERT INTO relay_checkpoint (slot, lsn, system_id, timeline) VALUES ($1, '0/0', $2, $3)
ON CONFLICT (slot) DO UPDATE SET lsn = '0/0'
