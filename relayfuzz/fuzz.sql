-- The fuzz's own record, in the transactions of those who write: what is in the feed is here, whatever becomes of the feed.
CREATE TABLE fuzz_key (key text PRIMARY KEY, n bigint NOT NULL DEFAULT 0);

CREATE TABLE fuzz_written (
  id uuid NOT NULL, aggregate text NOT NULL, key text NOT NULL, seq bigint NOT NULL, n bigint, digest text, xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE FUNCTION fuzz_record() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO fuzz_written (id, aggregate, key, seq, n, digest)
  SELECT id, aggregatetype, aggregateid, seq, (payload ->> 'n')::bigint, md5(payload::text) FROM made;
  RETURN NULL;
END
$$;
CREATE TRIGGER fuzz_record AFTER INSERT ON outbox_feed REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION fuzz_record();

-- Rows of keys that are locked until the transaction ends, each with the key's next number.
CREATE FUNCTION fuzz_write(keys text[], counts integer[], aggregate text, filling integer) RETURNS SETOF uuid
LANGUAGE plpgsql
AS $$
BEGIN
  PERFORM FROM fuzz_key AS k WHERE k.key = ANY (keys) ORDER BY k.key FOR UPDATE;
  RETURN QUERY
  INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload)
  SELECT aggregate, w.key, 'fuzz', jsonb_build_object('n', k.n + g.n, 'filling', repeat('x', filling))
  FROM unnest(keys, counts) AS w (key, count) JOIN fuzz_key AS k USING (key), LATERAL generate_series(1, w.count) AS g (n)
  ORDER BY g.n, w.key
  RETURNING id;
  UPDATE fuzz_key AS k SET n = k.n + w.count FROM unnest(keys, counts) AS w (key, count) WHERE k.key = w.key;
END
$$;
