"""Servers and processes that stop, freeze and die under the relay: nothing is lost, order holds, nobody has to help."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

import devservers
from devservers.kafka import LocalKafka
from devservers.postgres import LocalPostgres
from streams.adapters.kafka import create_topics
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.topics import Topics
from tests.conftest import SALT
from tests.integration.relay_setup import Reader, Setup, eventually, running, streaming

pytestmark = pytest.mark.servers


@pytest.fixture
async def setup(own_servers: devservers.Servers, request: pytest.FixtureRequest) -> Setup:
    """On servers that a test may stop; they run again when it ends."""
    for server in own_servers.local:
        await asyncio.to_thread(server.start)
    name = f"relay_{abs(hash(request.node.name))}"
    topics = Topics(prefix=f"{name}.")
    bootstrap_servers = own_servers.kafka.bootstrap_servers
    dsn = await asyncio.to_thread(own_servers.postgres.create_database, name)
    setup = Setup(dsn=dsn, bootstrap_servers=bootstrap_servers, topics=topics)
    async with Database(dsn, pool_size=2, timeout_s=30, name="test") as database:
        await migrate(database, salt=SALT, slot=setup.slot)
    await create_topics(bootstrap_servers, topics, partitions=3, replication_factor=1)
    return setup


@pytest.fixture
def kafka(own_servers: devservers.Servers) -> LocalKafka:
    assert isinstance(own_servers.kafka, LocalKafka)
    return own_servers.kafka


@pytest.fixture
def postgres(own_servers: devservers.Servers) -> LocalPostgres:
    assert isinstance(own_servers.postgres, LocalPostgres)
    return own_servers.postgres


@contextlib.asynccontextmanager
async def process(setup: Setup) -> AsyncIterator[asyncio.subprocess.Process]:
    """A relay process, killed after the body if it still lives."""
    started = await asyncio.create_subprocess_exec(
        *setup.command(), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def has_all(count: int) -> Any:
    return lambda records: len({json.loads(r.value)["n"] for r in records}) >= count


def assert_order(records: list[Any]) -> None:
    """Leaving repetitions out, the rows of each key are in their order."""
    seen: dict[bytes, list[int]] = {}
    for record in records:
        number = json.loads(record.value)["n"]
        numbers = seen.setdefault(record.key, [])
        if number not in numbers:
            numbers.append(number)
    assert all(numbers == sorted(numbers) for numbers in seen.values())


async def arrives_after(setup: Setup, count: int) -> list[Any]:
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        records = await reader.read(has_all(count))
    assert_order(records)
    return records


async def test_kafka_killed_and_started_again(setup: Setup, kafka: LocalKafka) -> None:
    async with streaming(setup.relay()):
        inserting = asyncio.create_task(setup.insert(0, 20_000))
        await asyncio.sleep(0)
        await asyncio.to_thread(kafka.kill)
        await inserting
        await asyncio.to_thread(kafka.start)
        await setup.insert(20_000, 20_100)
        await arrives_after(setup, 20_100)


async def test_a_start_without_kafka_waits_for_it(setup: Setup, kafka: LocalKafka) -> None:
    await asyncio.to_thread(kafka.kill)
    relay = setup.relay()
    await relay.start()
    async with running(relay):
        await setup.insert(0, 100)

        async def says_so() -> bool:
            return "Kafka" in relay.health.missing().get("stream", "")

        await eventually(says_so)
        await asyncio.to_thread(kafka.start)
        await arrives_after(setup, 100)


async def test_frozen_kafka_fills_the_bound_and_the_slot_stays_ours(
    setup: Setup, kafka: LocalKafka
) -> None:
    relay = setup.relay(max_rows=500)
    async with streaming(relay):
        await setup.insert(0, 10)
        await arrives_after(setup, 10)
        pid = await setup.slot_pid()
        kafka.pause()
        try:
            await setup.insert(10, 30_000)

            async def does_not_acknowledge() -> bool:
                # Longer than wal_sender_timeout: only the status timer keeps the connection.
                return "kafka" in relay.health.missing()

            await eventually(does_not_acknowledge)
            assert not relay.health.stuck()
        finally:
            kafka.cont()
        await arrives_after(setup, 30_000)
        assert await setup.slot_pid() == pid
        assert not relay.health.missing()


async def test_postgres_stopped_in_good_order_and_started_again(
    setup: Setup, postgres: LocalPostgres
) -> None:
    async with streaming(setup.relay()):
        await setup.insert(0, 5_000)
        # Fast shutdown: the server waits until the relay has confirmed everything, or has gone.
        os.kill(postgres.pid, signal.SIGINT)

        async def has_ended() -> bool:
            return not postgres.alive

        await eventually(has_ended)
        await asyncio.to_thread(postgres.start)
        await setup.insert(5_000, 5_100)
        await arrives_after(setup, 5_100)


async def test_postgres_killed_and_started_again(setup: Setup, postgres: LocalPostgres) -> None:
    async with streaming(setup.relay()):
        await setup.insert(0, 5_000)
        await asyncio.to_thread(postgres.kill)
        await asyncio.to_thread(postgres.start)
        await setup.insert(5_000, 5_100)
        await arrives_after(setup, 5_100)


async def test_a_killed_postgres_does_not_make_the_relay_send_again_what_it_had_acknowledged(
    setup: Setup, postgres: LocalPostgres
) -> None:
    """The slot goes back to what is on disk of it, the stored position does not."""
    async with streaming(setup.relay()):
        await setup.execute("CHECKPOINT")
        await setup.insert(0, 5_000)
        written = await setup.wal_position()

        async def is_confirmed() -> bool:
            return await setup.confirmed() >= written

        await eventually(is_confirmed)
        await asyncio.to_thread(postgres.kill)
        await asyncio.to_thread(postgres.start)
        await setup.insert(5_000, 5_010)
        assert len(await arrives_after(setup, 5_010)) == 5_010


async def test_the_server_process_is_ended_in_the_middle_of_the_stream(setup: Setup) -> None:
    async with streaming(setup.relay()):
        inserting = asyncio.create_task(setup.insert(0, 20_000))
        for _ in range(5):
            pid = await eventually(setup.slot_pid)
            await setup.execute("SELECT pg_terminate_backend($1)", pid)

            async def is_another(ended: int = pid) -> bool:
                return await setup.slot_pid() not in (None, ended)

            await eventually(is_another)
        await inserting
        await arrives_after(setup, 20_000)


async def test_a_slot_that_the_server_invalidated_is_made_anew(setup: Setup) -> None:
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(setup.relay()):
            await setup.insert(0, 100)
            await reader.read(has_all(100))
        await setup.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        await setup.execute("SELECT pg_reload_conf()")
        await setup.insert(100, 200)

        async def is_lost() -> bool:
            await setup.execute("SELECT pg_switch_wal()")
            await setup.insert(0, 1)
            await setup.execute("CHECKPOINT")
            status = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1"
            return bool(await setup.value(status, setup.slot) == "lost")

        try:
            await eventually(is_lost)
        finally:
            await setup.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            await setup.execute("SELECT pg_reload_conf()")
        async with streaming(setup.relay()):
            await setup.insert(200, 300)
            await reader.read(has_all(300))


async def test_a_killed_relay_loses_nothing_and_the_next_one_goes_on(setup: Setup) -> None:
    await setup.insert(0, 40_000, per_commit=200)
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with process(setup) as first:
            await reader.read(lambda records: len(records) >= 2_000)
            first.kill()
            await first.wait()
        await setup.insert(40_000, 41_000)
        async with process(setup) as second:
            records = await reader.read(has_all(41_000))
            second.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(second.wait(), 15) == 0
        records = await reader.rest()
    assert_order(records)
    written = await setup.wal_position()
    assert written - await setup.confirmed() < 1_000_000


async def test_a_relay_process_that_dies_is_followed_by_its_standby(setup: Setup) -> None:
    async with (
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
        process(setup) as first,
    ):
        await eventually(setup.slot_pid)
        relay = setup.relay()
        await relay.start()
        async with running(relay):
            await setup.insert(0, 1000)
            await reader.read(lambda records: len(records) >= 100)
            first.kill()

            async def has_taken_over() -> bool:
                return not relay.health.missing()

            await eventually(has_taken_over)
            await reader.read(has_all(1000))
