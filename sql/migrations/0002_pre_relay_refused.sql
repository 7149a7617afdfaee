-- 0002, before the code: where the relay sets rows aside that can never be Kafka records.

-- Rows of the feed that can never be Kafka records, set aside so that the slot goes on. A person decides.
CREATE TABLE relay_refused (
  id uuid PRIMARY KEY,
  seq bigint NOT NULL,
  aggregatetype text,
  aggregateid text,
  type text,
  payload text,
  tracingspancontext text,
  reason text NOT NULL CHECK (reason IN ('no-key', 'no-topic', 'too-large', 'refused-by-kafka')),
  detail text,
  refused timestamptz NOT NULL DEFAULT clock_timestamp()
);
