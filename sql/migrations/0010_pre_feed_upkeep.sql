-- 0010, before the code: partitions of the feed that Kafka has are dropped.

-- What could be seen at a position of the WAL, so that a position that the slot has confirmed tells which rows it has passed.
-- Gone when a newer one is confirmed.
CREATE TABLE feed_mark (
  taken timestamptz PRIMARY KEY,
  lsn pg_lsn NOT NULL,
  snapshot pg_snapshot NOT NULL,
  system_id text NOT NULL
);

CREATE FUNCTION feed_partitions() RETURNS TABLE (partition regclass, ends timestamptz)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT c.oid::regclass, (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC'
  FROM pg_inherits AS i
  JOIN pg_class AS c ON c.oid = i.inhrelid
  WHERE i.inhparent = 'outbox_feed'::regclass AND c.relname ~ '^outbox_feed_[0-9]{8}$'
$$;
COMMENT ON FUNCTION feed_partitions() IS 'The day partitions of the feed, and when the day of each ends.';

-- The relay's own position counts beside the slot's: one that was made anew stands beyond rows that are not sent yet, and 0 says
-- that they are being sent again.
CREATE FUNCTION feed_confirmed(slot text) RETURNS pg_lsn
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT CASE WHEN c.system_id <> (SELECT system_identifier::text FROM pg_control_system()) THEN NULL ELSE least(s.confirmed_flush_lsn, c.lsn) END
  FROM pg_replication_slots AS s
  LEFT JOIN relay_checkpoint AS c ON c.slot = s.slot_name
  WHERE s.slot_name = feed_confirmed.slot AND s.database = current_database() AND s.active AND s.wal_status <> 'lost'
$$;
COMMENT ON FUNCTION feed_confirmed(text) IS 'Up to where Kafka has the feed for certain; null if the slot is not there, not in use or lost.';

CREATE FUNCTION feed_confirmed_snapshot(slot text) RETURNS pg_snapshot
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
  SELECT m.snapshot FROM feed_mark AS m
  WHERE m.lsn <= feed_confirmed(slot) AND m.system_id = (SELECT system_identifier::text FROM pg_control_system())
  ORDER BY m.lsn DESC LIMIT 1
$$;

CREATE FUNCTION mark_feed(slot text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  cluster CONSTANT text := (SELECT system_identifier::text FROM pg_control_system());
BEGIN
  DELETE FROM feed_mark AS m
  WHERE m.system_id <> cluster OR m.lsn < (SELECT max(n.lsn) FROM feed_mark AS n WHERE n.system_id = cluster AND n.lsn <= feed_confirmed(slot));
  -- The snapshot is taken before the position is read: whatever it sees was written before.
  INSERT INTO feed_mark (taken, lsn, snapshot, system_id)
  SELECT clock_timestamp(), pg_current_wal_insert_lsn(), pg_current_snapshot(), cluster
  ON CONFLICT (taken) DO NOTHING;
END
$$;
COMMENT ON FUNCTION mark_feed(text) IS 'Notes what can be seen now, and at which position of the WAL.';

-- Not DETACH CONCURRENTLY: PostgreSQL refuses that beside a default partition. What may wait or read is done before the lock that
-- inserts wait behind, and that one is asked for in turns of 50 ms.
CREATE FUNCTION drop_feed_partition(slot text, keep interval) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  oldest regclass;
  confirmed pg_snapshot;
  needed boolean;
BEGIN
  SELECT p.partition INTO oldest FROM feed_partitions() AS p
  WHERE p.ends < clock_timestamp() - greatest(keep, interval '0') ORDER BY p.ends LIMIT 1;
  IF NOT FOUND THEN
    RETURN 'none';
  END IF;
  confirmed := feed_confirmed_snapshot(slot);
  BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', oldest);
  EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
  END;
  EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE pg_visible_in_snapshot(xid, $1) IS NOT TRUE)', oldest) INTO needed USING confirmed;
  IF needed THEN
    RETURN 'unconfirmed';
  END IF;
  PERFORM set_config('lock_timeout', '50ms', true);
  -- Behind a pooler a client may freeze before it commits.
  PERFORM set_config('idle_in_transaction_session_timeout', '1s', true);
  FOR turn IN 1..5 LOOP
    BEGIN
      LOCK TABLE outbox_feed_default IN ACCESS EXCLUSIVE MODE NOWAIT;
      LOCK TABLE ONLY outbox_feed IN ACCESS EXCLUSIVE MODE;
      EXECUTE format('DROP TABLE %s', oldest);
      RETURN 'dropped';
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      PERFORM pg_sleep(0.2);
    END;
  END LOOP;
  RETURN 'busy';
END
$$;
COMMENT ON FUNCTION drop_feed_partition(text, interval) IS 'Drops the oldest partition whose day ended so long ago, if Kafka has all of it by the slot, or it is empty. Returns dropped, none (no partition is so old), unconfirmed, or busy (somebody uses it; ask again). An insert waits 100 ms at most.';

CREATE FUNCTION purge_feed_default(slot text, keep interval, at_most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  confirmed CONSTANT pg_snapshot := feed_confirmed_snapshot(slot);
  removed integer;
BEGIN
  DELETE FROM outbox_feed_default AS f
  WHERE f.ctid = ANY (ARRAY(
    SELECT o.ctid FROM outbox_feed_default AS o
    WHERE o.ts < (clock_timestamp() - greatest(keep, interval '0')) AT TIME ZONE 'UTC' AND pg_visible_in_snapshot(o.xid, confirmed)
    LIMIT at_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END
$$;
COMMENT ON FUNCTION purge_feed_default(text, interval, integer) IS 'Removes rows of the feed that lie in no day partition, as drop_feed_partition does with whole days; returns how many.';
