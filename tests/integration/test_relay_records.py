"""What the relay makes of committed rows: topic, key, headers, value, partition and order."""

import asyncio
import json
from collections import defaultdict

import asyncpg
import pytest

import devservers
from streams.domain.errors import Misconfigured
from streams.domain.partitioner import partition_of
from streams.domain.topics import Lane, Topics
from tests.conftest import PARTITIONS
from tests.integration.relay_setup import Reader, Setup, eventually, running, streaming

pytestmark = pytest.mark.servers

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def setup(servers: devservers.Servers, database_dsn: str, topics: Topics) -> Setup:
    made = Setup(dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics)
    await made.make_slot()
    return made


async def test_a_row_becomes_the_record_of_the_outbox_event_router(setup: Setup) -> None:
    topic = setup.topics.outbox(Lane.BULK)
    async with streaming(setup.relay()), Reader(setup.bootstrap_servers, topic) as reader:
        await setup.execute(
            "INSERT INTO outbox_feed (id, aggregatetype, aggregateid, type, payload, tracingspancontext) VALUES "
            "('01a22d80-2d39-7389-ae47-c28188ee5857', 'outbox.bulk', 'Jürgen', 'pointer', "
            '\'{"b": 1.50, "a": "ü", "c": [1,2]}\', $1)',
            f"traceparent={TRACEPARENT}",
        )
        [record] = await reader.read(lambda found: len(found) == 1)
        as_text = await setup.value("SELECT payload::text FROM outbox_feed")
        seq = await setup.value("SELECT seq::text FROM outbox_feed")
    assert record.key == "Jürgen".encode()
    assert record.value == as_text.encode()
    assert record.headers == (
        ("id", b"01a22d80-2d39-7389-ae47-c28188ee5857"),
        ("type", b"pointer"),
        ("seq", seq.encode()),
        ("traceparent", TRACEPARENT.encode()),
    )
    assert record.partition == partition_of("Jürgen".encode(), PARTITIONS)


async def test_a_null_payload_is_a_tombstone_and_no_context_is_no_header(setup: Setup) -> None:
    async with (
        streaming(setup.relay()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type) VALUES ('suppressions', 'k', 'suppressions')"
        )
        [record] = await reader.read(lambda found: len(found) == 1)
    assert (record.key, record.value) == (b"k", None)
    assert [name for name, _ in record.headers] == ["id", "type", "seq"]


async def test_committed_rows_arrive_in_commit_order_per_key_and_rolled_back_ones_never(
    setup: Setup,
) -> None:
    async def writer(number: int) -> None:
        connection = await asyncpg.connect(setup.dsn)
        try:
            for round_ in range(60):
                transaction = connection.transaction()
                await transaction.start()
                # The lock makes the order of the commits known: seq is drawn while it is held.
                await connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtext($1))", f"k{round_ % 5}"
                )
                await connection.execute(
                    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
                    "VALUES ('suppressions', $1, 't', jsonb_build_object('writer', $2::int, 'kept', $3::bool))",
                    f"k{round_ % 5}",
                    number,
                    round_ % 3 != 0,
                )
                await (transaction.rollback() if round_ % 3 == 0 else transaction.commit())
        finally:
            await connection.close()

    async with (
        streaming(setup.relay()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await asyncio.gather(*(writer(number) for number in range(4)))
        await reader.read(lambda found: len(found) >= 160)
        records = await reader.rest()
    assert len(records) == 160
    assert all(json.loads(record.value)["kept"] for record in records)
    sequences = defaultdict(list)
    for record in records:
        sequences[record.key].append(int(dict(record.headers)["seq"]))
    assert len(sequences) == 5
    assert all(found == sorted(found) for found in sequences.values())


async def test_a_transaction_of_50000_rows_arrives_whole_and_in_order(setup: Setup) -> None:
    async with (
        streaming(setup.relay(max_rows=5_000)),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.insert(0, 50_000, keys=1000, per_commit=50_000)
        records = await reader.read(lambda found: len(found) >= 50_000)
        written = await setup.wal_position()

        async def is_confirmed() -> bool:
            return await setup.confirmed() >= written

        await eventually(is_confirmed)
    assert sorted(json.loads(record.value)["n"] for record in records) == list(range(50_000))
    last: dict[bytes, int] = {}
    for record in records:
        number = json.loads(record.value)["n"]
        assert last.get(record.key, -1) < number
        last[record.key] = number


async def test_emails_inserted_by_the_application_become_pointers(setup: Setup) -> None:
    topic = setup.topics.outbox(Lane.TRANSACTIONAL)
    async with streaming(setup.relay()), Reader(setup.bootstrap_servers, topic) as reader:
        made = await setup.value(
            "SELECT enqueue_email('ann@example.com', 'shop@example.com', 'Hi', 'x', traceparent => $1)",
            TRACEPARENT,
        )
        [record] = await reader.read(lambda found: len(found) == 1)
        key = await setup.value("SELECT recipient_key('ann@example.com')")
    assert json.loads(record.value)["id"] == str(made)
    assert record.key == key.encode()
    assert dict(record.headers)["traceparent"] == TRACEPARENT.encode()


async def test_a_new_column_is_ignored_and_a_vanished_one_stops_the_relay(setup: Setup) -> None:
    relay = setup.relay()
    await relay.start()
    async with (
        running(relay) as run,
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.insert(0, 1)
        await setup.execute("ALTER TABLE outbox_feed ADD COLUMN note text DEFAULT 'x'")
        await setup.insert(1, 2)
        await reader.read(lambda found: len(found) == 2)
        assert not run.done()
        await setup.execute("ALTER TABLE outbox_feed RENAME COLUMN payload TO body")
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type) VALUES ('suppressions', 'k', 't')"
        )
        with pytest.raises(Misconfigured, match="no column payload"):
            await asyncio.wait_for(run, 20)


async def test_a_row_without_a_key_is_set_aside_and_the_others_go_on(setup: Setup) -> None:
    async with (
        streaming(setup.relay()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) VALUES "
            "('suppressions', '', 't', '{\"n\": 1}'), ('not a topic', 'k', 't', '{\"n\": 2}'), ('suppressions', 'k', 't', '{\"n\": 3}')"
        )
        [record] = await reader.read(lambda found: len(found) == 1)
        refused = await setup.value(
            "SELECT string_agg(reason || ' ' || payload, ', ' ORDER BY seq) FROM relay_refused"
        )
    assert record.value == b'{"n": 3}'
    assert refused == 'no-key {"n": 1}, no-topic {"n": 2}'


async def test_a_record_that_kafka_never_takes_is_set_aside_and_the_others_arrive(
    setup: Setup,
) -> None:
    # Kafka takes batches of at most 1 MiB, and this payload does not compress in a row of jsonb.
    large = "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 40000) AS n"
    async with (
        streaming(setup.relay()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await setup.insert(0, 10)
        await setup.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
            f"VALUES ('suppressions', md5('3'), 't', to_jsonb(({large})))"
        )
        await setup.insert(10, 20)
        records = await reader.read(
            lambda found: len({json.loads(r.value)["n"] for r in found}) == 20
        )
        reason, size = await setup.value(
            "SELECT ARRAY[reason, length(payload)::text] FROM relay_refused"
        )

        async def has_passed() -> bool:
            return await setup.confirmed() >= written

        written = await setup.wal_position()
        await eventually(has_passed)
    assert (reason, size) == ("refused-by-kafka", str(32 * 40000 + 2))
    assert len({record.key for record in records}) == 20
