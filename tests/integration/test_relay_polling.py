"""Polling: every committed row becomes the record that it would be in wal mode, whenever it commits, and is then removed."""

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import devservers
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.adapters.relay_poll_store import CONNECTIONS, RelayPollStore
from streams.domain.errors import Misconfigured
from streams.domain.topics import Topics
from streams.ports.relay_polling import Share
from tests.conftest import SALT
from tests.integration.polling_setup import PollingSetup
from tests.integration.relay_setup import Reader, eventually, streaming

pytestmark = pytest.mark.servers


@pytest.fixture
async def setup(servers: devservers.Servers, database_dsn: str, topics: Topics) -> PollingSetup:
    made = PollingSetup(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics
    )
    await made.make_index()
    return made


def numbers(records: list[Any]) -> list[int]:
    return [json.loads(record.value)["n"] for record in records]


def has_all(count: int) -> Any:
    return lambda records: len(set(numbers(records))) >= count


async def test_what_is_acknowledged_is_removed_and_a_restart_repeats_nothing(
    setup: PollingSetup,
) -> None:
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(setup.polling()):
            await setup.insert(0, 5000)
            await reader.read(has_all(5000))
            await eventually(setup.is_empty)
            await setup.insert(5000, 5500)
        await setup.insert(5500, 5600)
        async with streaming(setup.polling()):
            await reader.read(has_all(5600))
            await eventually(setup.is_empty)
        assert len(await reader.rest()) == 5600
    order: dict[bytes, list[int]] = {}
    for record in reader.records:
        order.setdefault(record.key, []).append(json.loads(record.value)["n"])
    assert all(found == sorted(found) for found in order.values())


async def test_records_are_those_of_wal_mode_byte_for_byte(setup: PollingSetup) -> None:
    """The same rows through both, the wal relay first, which leaves them in the feed."""
    await setup.make_slot()
    context = "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await setup.execute(
        "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, tracingspancontext) "
        "SELECT (ARRAY['suppressions', 'delivery-events', 'outbox.bulk'])[1 + n % 3], 'schlüssel ' || n % 7, 't' || n, "
        "CASE WHEN n % 5 = 0 THEN NULL ELSE jsonb_build_object('n', 1.50 + n, 'text', repeat('ü', n % 50), 'a', ARRAY[n, NULL]) END, "
        "CASE WHEN n % 4 = 0 THEN $1 END FROM generate_series(1, 300) AS n",
        context,
    )
    names = (
        setup.topics.suppressions,
        setup.topics.delivery_events,
        f"{setup.topics.prefix}outbox.bulk",
    )
    async with Reader(setup.bootstrap_servers, *names) as reader:
        async with streaming(setup.relay()):
            await reader.read(lambda records: len(records) >= 300)
        by_wal = [as_sent(record) for record in reader.records]
        reader.records.clear()
        # Without it nobody knows that they were sent.
        await setup.execute("SELECT pg_drop_replication_slot($1)", setup.slot)
        async with streaming(setup.polling()):
            await reader.read(lambda records: len(records) >= 300)
            await eventually(setup.is_empty)
        by_poll = [as_sent(record) for record in await reader.rest()]
    for place in {sent[:2] for sent in by_wal}:
        assert [s for s in by_poll if s[:2] == place] == [s for s in by_wal if s[:2] == place]
    assert len(by_poll) == 300


def as_sent(record: Any) -> tuple[Any, ...]:
    return (record.topic, record.partition, record.key, record.value, record.headers)


async def test_rows_that_can_be_no_record_are_set_aside_and_the_others_go_on(
    setup: PollingSetup,
) -> None:
    async with (
        streaming(setup.polling()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) VALUES "
            "('suppressions', 'a', 't', '{\"n\": 1}'), ('suppressions', '', 't', '{}'), ('no topic!', 'a', 't', '{}'), "
            "('suppressions', 'a', 't', jsonb_build_object('n', 2, 'text', repeat('x', 2000000))), "
            "('suppressions', 'a', 't', '{\"n\": 3}')"
        )
        await reader.read(lambda records: {1, 3} <= set(numbers(records)))
        await eventually(setup.is_empty)
        assert 2 not in numbers(await reader.rest())
    reasons = await setup.value("SELECT array_agg(reason ORDER BY reason) FROM relay_refused")
    assert reasons == ["no-key", "no-topic", "refused-by-kafka"]


async def test_a_missing_topic_is_named_and_waited_for(setup: PollingSetup) -> None:
    relay = setup.polling()
    name = f"later-{setup.slot}"
    topic = f"{setup.topics.prefix}{name}"
    async with streaming(relay):
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) VALUES ($1, 'a', 't', '{\"n\": 1}')",
            name,
        )

        async def says_so() -> bool:
            return topic in relay.health.missing().get("topic", "")

        await eventually(says_so)
        admin = AIOKafkaAdminClient(bootstrap_servers=setup.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 1, 1)])
            await eventually(setup.is_empty)
            assert not relay.health.missing()
        finally:
            await admin.delete_topics([topic])
            await admin.close()


async def test_a_partition_that_is_made_later_is_read_by_the_same_index(
    setup: PollingSetup,
) -> None:
    async with (
        streaming(setup.polling()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.execute("SELECT make_feed_partitions(9)")
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, ts) "
            "SELECT 'suppressions', 'a', 't', jsonb_build_object('n', n), clock_timestamp() AT TIME ZONE 'UTC' + interval '1 day' * n "
            "FROM generate_series(0, 12) AS n"
        )
        await reader.read(has_all(13))
        await eventually(setup.is_empty)
    unindexed = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_feed'::regclass AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = inhrelid AND indisvalid)"
    assert await setup.value(unindexed) == 0


async def test_a_row_whose_number_was_written_by_hand_is_found(setup: PollingSetup) -> None:
    """Nothing of the writer's tells that a row will come so far behind; the look at everything finds it."""
    async with (
        streaming(setup.polling()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.insert(0, 100)
        await reader.read(has_all(100))
        await eventually(setup.is_empty)
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, seq) VALUES ('suppressions', 'a', 't', '{\"n\": 100}', 7)"
        )
        await reader.read(has_all(101), within_s=15)
        await eventually(setup.is_empty)


async def test_a_row_of_another_that_got_the_same_number_is_not_removed(
    setup: PollingSetup,
) -> None:
    async with Database(setup.dsn, pool_size=CONNECTIONS, timeout_s=15, name="test") as database:
        store = RelayPollStore(database, slot=setup.slot, relay_id=uuid4())
        await setup.insert(0, 2)
        await setup.execute("UPDATE outbox_feed SET seq = 1")
        share = Share(shards=1, held=[0])
        first, second = await store.behind(share, after=0, end=1, most=10)
        await store.delete([first])
        assert await store.behind(share, after=0, end=1, most=10) == [second]


async def test_a_page_is_bounded_by_bytes_and_by_shards(setup: PollingSetup) -> None:
    async with Database(setup.dsn, pool_size=CONNECTIONS, timeout_s=15, name="test") as database:
        store = RelayPollStore(database, slot=setup.slot, relay_id=uuid4())
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
            "SELECT 'suppressions', 'k' || n, 't', jsonb_build_object('text', repeat('x', 1500000)) FROM generate_series(1, 6) AS n"
        )
        whole = Share(shards=1, held=[0])
        page = await store.page(whole, ordinal=1, after=0, end=6)
        assert (len(page.rows), page.complete) == (3, False)
        rest = await store.page(whole, ordinal=2, after=page.names[-1][0], end=6)
        assert len(rest.rows) == 3
        parts = [
            await store.behind(Share(shards=3, held=[shard]), after=0, end=6, most=10)
            for shard in range(3)
        ]
        assert sorted(name[0] for part in parts for name in part) == [1, 2, 3, 4, 5, 6]


async def test_without_its_index_polling_says_what_to_run(
    servers: devservers.Servers, database_dsn: str, topics: Topics
) -> None:
    setup = PollingSetup(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics
    )
    relay = setup.polling()
    with pytest.raises(Misconfigured, match="mailstreams migrate"):
        await relay.start()
    await relay.stop()


async def test_relays_with_another_number_of_shards_are_refused_while_some_are_held(
    setup: PollingSetup,
) -> None:
    other = replace(setup, shards=3)
    async with streaming(setup.polling()):
        relay = other.polling()
        with pytest.raises(Misconfigured, match="MAILSTREAMS_RELAY_SHARDS=1"):
            await relay.start()
        await relay.stop()
    async with streaming(other.polling()):
        assert await setup.value("SELECT count(*) FROM relay_shard") == 3


async def test_a_clock_that_was_set_back_does_not_keep_shards_from_the_living(
    setup: PollingSetup,
) -> None:
    """What a relay left that died an hour later by the clock of then."""
    shared = replace(setup, shards=2)
    async with streaming(shared.polling()):
        pass
    await setup.execute(
        "UPDATE relay_shard SET holder = gen_random_uuid(), expires = clock_timestamp() + interval '1 hour'"
    )
    await setup.execute(
        "INSERT INTO relay_poller VALUES (gen_random_uuid(), clock_timestamp() + interval '1 hour')"
    )
    held = "SELECT count(*) FROM relay_shard WHERE expires < clock_timestamp() + interval '9 s'"
    async with streaming(shared.polling()):
        assert await setup.value(held) == 2


async def test_the_two_modes_refuse_to_be_at_work_together(setup: PollingSetup) -> None:
    await setup.make_slot()
    async with streaming(setup.polling()):
        relay = setup.relay()
        with pytest.raises(Misconfigured, match="polling mode is at work"):
            await relay.start()
        await relay.stop()
    async with streaming(setup.relay()):
        polling = setup.polling()
        with pytest.raises(Misconfigured, match="wal mode streams from the slot"):
            await polling.start()
        await polling.stop()


@pytest.mark.parametrize("attached", [False, True])
async def test_an_index_whose_making_was_broken_off_is_made_anew(
    setup: PollingSetup, attached: bool
) -> None:
    part = "(SELECT 'outbox_feed_default'::regclass)"
    index = f"(SELECT indexrelid FROM pg_index WHERE indrelid = {part})"
    parent = "'outbox_feed_seq_idx'::regclass"
    if not attached:
        # As CREATE INDEX CONCURRENTLY leaves it: of the partition alone, and of no use.
        await setup.execute("DROP INDEX outbox_feed_seq_idx")
        await setup.execute("CREATE INDEX outbox_feed_default_seq_idx ON outbox_feed_default (seq)")
    await setup.execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = {index}")
    if attached:
        await setup.execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = {parent}")
    await setup.make_index()
    assert await setup.value(f"SELECT indisvalid FROM pg_index WHERE indexrelid = {parent}")
    assert await setup.value(f"SELECT indisvalid FROM pg_index WHERE indexrelid = {index}")


async def test_a_relay_in_wal_mode_makes_no_slot_while_another_one_polls(
    setup: PollingSetup,
) -> None:
    await setup.make_slot()
    relay = setup.relay()
    await relay.start()
    async with streaming(setup.polling()):
        # Which has dropped the slot meanwhile, so that there is one to be made.
        with pytest.raises(Misconfigured, match="polling mode is at work"):
            await relay.run()
        await relay.stop()
        assert (
            await setup.value(
                "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", setup.slot
            )
            == 0
        )


async def test_migrate_in_wal_mode_drops_the_index_once_no_relay_polls(
    setup: PollingSetup, database: Database
) -> None:
    async with streaming(setup.polling()):
        with pytest.raises(Misconfigured, match="relays in polling mode are at work"):
            await migrate(database, salt=SALT, slot=None)
    assert (await migrate(database, salt=SALT, slot=None)).index_dropped
    assert (
        await setup.value("SELECT count(*) FROM pg_indexes WHERE tablename LIKE 'outbox_feed%'")
        == 0
    )
    assert (await migrate(database, salt=SALT, slot=None, polling=True)).index_made
    assert not (await migrate(database, salt=SALT, slot=None, polling=True)).index_made
