-- 0004, before the code: which relay in polling mode reads which share of the recipient keys.

-- Empty while no relay has ever polled. A lease is held until it expires by this server's clock; shards: of how many this is one.
CREATE TABLE relay_shard (
  shard integer PRIMARY KEY CHECK (shard >= 0),
  shards integer NOT NULL CHECK (shards > shard),
  holder uuid,
  expires timestamptz NOT NULL DEFAULT '-infinity'
);

-- Relays in polling mode that live, with or without a shard, so that each knows its fair share.
CREATE TABLE relay_poller (
  id uuid PRIMARY KEY,
  expires timestamptz NOT NULL
);

-- What Kafka had of the feed when polling began: rows that the snapshot sees are removed and not sent. Only within this history of
-- this cluster, since another one gives the same transaction ids again. Gone when they are removed.
CREATE TABLE relay_acknowledged (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  snapshot pg_snapshot NOT NULL,
  system_id text NOT NULL,
  timeline integer NOT NULL
);
