"""The slot: one relay at a time, confirmed behind Kafka, made anew without a gap when it is lost."""

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import devservers
from streams.adapters.kafka import create_topics
from streams.adapters.replication import ReplicationConnection
from streams.domain.errors import Misconfigured
from streams.domain.slots import PUBLICATION
from streams.domain.topics import Topics
from tests.integration.relay_setup import Reader, Setup, eventually, running, streaming

pytestmark = pytest.mark.servers


@pytest.fixture
async def setup(servers: devservers.Servers, database_dsn: str, topics: Topics) -> Setup:
    made = Setup(dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics)
    await made.make_slot()
    return made


def numbers(records: list[Any]) -> set[int]:
    return {json.loads(record.value)["n"] for record in records}


def has_all(count: int) -> Any:
    return lambda records: len(numbers(records)) >= count


async def test_a_clean_stop_confirms_everything_and_the_next_start_repeats_nothing(
    setup: Setup,
) -> None:
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(setup.relay()):
            await setup.insert(0, 500)
            await reader.read(has_all(500))
        async with streaming(setup.relay()):
            await setup.insert(500, 510)
            await reader.read(has_all(510))
        assert len(await reader.rest()) == 510


async def test_an_idle_stream_lets_the_server_forget_the_wal_of_others(setup: Setup) -> None:
    await setup.execute("CREATE TABLE other (n int)")
    async with streaming(setup.relay()):
        await setup.execute("INSERT INTO other SELECT generate_series(1, 10000)")
        written = await setup.wal_position()

        async def is_confirmed() -> bool:
            return await setup.confirmed() >= written

        await eventually(is_confirmed, within_s=20)


async def test_a_second_relay_stands_by_and_takes_over(setup: Setup) -> None:
    first, second = setup.relay(), setup.relay()
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        await second.start()
        async with streaming(first), running(second):

            async def stands_by() -> bool:
                return "another relay" in second.health.missing().get("slot", "")

            await eventually(stands_by)
            await setup.insert(0, 100)
            await reader.read(has_all(100))
            assert not second.health.stuck()
            await first.stop()

            async def has_taken_over() -> bool:
                return not second.health.missing()

            await eventually(has_taken_over)
            await setup.insert(100, 200)
            await reader.read(has_all(200))


async def test_a_foreign_reader_of_the_slot_is_waited_for(setup: Setup) -> None:
    foreign = ReplicationConnection(setup.dsn, slot=setup.slot, publication=PUBLICATION)
    await foreign.connect()
    assert await foreign.start()
    relay = setup.relay()
    await relay.start()
    async with running(relay):

        async def waits() -> bool:
            return "is read by the server process" in relay.health.missing().get("slot", "")

        async def streams() -> bool:
            return not relay.health.missing()

        await eventually(waits)
        await foreign.close()
        await eventually(streams)


@pytest.mark.parametrize("state", ["dropped", "made anew by somebody", "moved by somebody"])
async def test_a_lost_slot_is_made_anew_and_no_row_is_missed(setup: Setup, state: str) -> None:
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(setup.relay()):
            await setup.insert(0, 100)
            await reader.read(has_all(100))
        await setup.insert(100, 200)
        match state:
            case "moved by somebody":
                await setup.execute(
                    "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", setup.slot
                )
            case "made anew by somebody":
                await setup.execute("SELECT pg_drop_replication_slot($1)", setup.slot)
                await setup.make_slot()
            case _:
                await setup.execute("SELECT pg_drop_replication_slot($1)", setup.slot)
        await setup.insert(200, 300)
        async with streaming(setup.relay()):
            await setup.insert(300, 400)
            await reader.read(has_all(400))
        records = await reader.rest()
        # Only the rows of the first run are there twice: the slot was good again for those that followed.
        assert len(records) == 500
        async with streaming(setup.relay()):
            await setup.insert(400, 401)
            await reader.read(has_all(401))
        assert len(await reader.rest()) == 501
    order: dict[bytes, list[int]] = {}
    for record in records[100:]:
        order.setdefault(record.key, []).append(json.loads(record.value)["n"])
    assert all(found == sorted(found) for found in order.values())


async def test_a_crash_in_the_middle_of_a_recovery_begins_it_again(setup: Setup) -> None:
    await setup.insert(0, 300)
    # What a relay leaves that dies after it has made the slot anew and before all is acknowledged.
    await setup.execute(
        "INSERT INTO relay_checkpoint SELECT $1, '0/0', system_identifier::text, 1 FROM pg_control_system()",
        setup.slot,
    )
    await setup.execute("SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", setup.slot)
    async with (
        streaming(setup.relay()),
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
    ):
        await reader.read(has_all(300))


async def test_rows_committed_while_the_slot_is_made_anew_are_not_missed(setup: Setup) -> None:
    await setup.insert(0, 50)
    await setup.execute("SELECT pg_drop_replication_slot($1)", setup.slot)
    open_one = await asyncpg.connect(setup.dsn)
    relay = setup.relay()
    await relay.start()
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        transaction = open_one.transaction()
        await transaction.start()
        await open_one.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
            "VALUES ('suppressions', 'k', 't', '{\"n\": 1000}')"
        )
        async with running(relay):

            async def slot_waits() -> bool:
                return bool(
                    await setup.value(
                        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", setup.slot
                    )
                )

            await eventually(slot_waits)
            await setup.insert(50, 100)
            await transaction.commit()
            await open_one.close()
            await reader.read(has_all(101))


async def test_a_missing_publication_is_one_clear_sentence(setup: Setup) -> None:
    await setup.execute("DROP PUBLICATION mailstreams_feed")
    relay = setup.relay()
    with pytest.raises(Misconfigured, match="publication mailstreams_feed is missing"):
        await relay.start()
    await relay.stop()


async def test_a_publication_of_a_part_of_the_rows_is_refused(setup: Setup) -> None:
    await setup.execute(
        "ALTER PUBLICATION mailstreams_feed SET (publish_via_partition_root = false)"
    )
    relay = setup.relay()
    with pytest.raises(Misconfigured, match="does not publish every insert"):
        await relay.start()
    await relay.stop()


async def test_an_empty_database_is_one_clear_sentence(
    servers: devservers.Servers, topics: Topics
) -> None:
    dsn = servers.postgres.create_database("relay_empty")
    setup = Setup(dsn=dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics)
    relay = setup.relay()
    try:
        with pytest.raises(Misconfigured, match="mailstreams migrate"):
            await relay.start()
    finally:
        await relay.stop()
        servers.postgres.drop_database("relay_empty")


async def test_a_missing_topic_is_named_and_waited_for(
    servers: devservers.Servers, database_dsn: str
) -> None:
    later = Topics(prefix=f"{Path(database_dsn).name}-later.")
    setup = Setup(dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=later)
    await setup.make_slot()
    await setup.insert(0, 10)
    relay = setup.relay()
    await relay.start()
    async with running(relay):

        async def is_named() -> bool:
            why = relay.health.missing().get("topic", "")
            return f"topic {later.suppressions}" in why and "mailstreams migrate" in why

        await eventually(is_named)
        await create_topics(setup.bootstrap_servers, later, partitions=3, replication_factor=1)
        async with Reader(setup.bootstrap_servers, later.suppressions) as reader:
            await reader.read(has_all(10))
