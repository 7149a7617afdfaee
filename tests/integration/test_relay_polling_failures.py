"""Servers and processes that stop, freeze and die under polling relays: nothing is lost, order holds, nobody has to help."""

import asyncio
import contextlib
import json
import signal
import time
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
from tests.integration.numbered_rows import numbered_writers, without_repeats
from tests.integration.polling_setup import PollingSetup
from tests.integration.relay_setup import Reader, eventually, running, streaming

pytestmark = pytest.mark.servers

TAKEN_OVER_AFTER_A_KILL_S = 15.0
TAKEN_OVER_AFTER_AN_END_S = 3.0
HOLDER = "SELECT holder::text FROM relay_shard WHERE expires > clock_timestamp()"


@pytest.fixture
async def setup(
    own_servers: devservers.Servers, request: pytest.FixtureRequest
) -> AsyncIterator[PollingSetup]:
    """On servers that a test may stop; they run again when it ends."""
    for server in own_servers.local:
        await asyncio.to_thread(server.start)
    name = f"polling_{abs(hash(request.node.name))}"
    topics = Topics(prefix=f"{name}.")
    bootstrap_servers = own_servers.kafka.bootstrap_servers
    dsn = await asyncio.to_thread(own_servers.postgres.create_database, name)
    async with Database(dsn, pool_size=2, timeout_s=30, name="test") as database:
        await migrate(database, salt=SALT, slot=None, polling=True)
    await create_topics(bootstrap_servers, topics, partitions=3, replication_factor=1)
    yield PollingSetup(dsn=dsn, bootstrap_servers=bootstrap_servers, topics=topics)
    for server in own_servers.local:
        await asyncio.to_thread(server.start)
    await asyncio.to_thread(own_servers.postgres.drop_database, name)


@pytest.fixture
def kafka(own_servers: devservers.Servers) -> LocalKafka:
    assert isinstance(own_servers.kafka, LocalKafka)
    return own_servers.kafka


@pytest.fixture
def postgres(own_servers: devservers.Servers) -> LocalPostgres:
    assert isinstance(own_servers.postgres, LocalPostgres)
    return own_servers.postgres


@contextlib.asynccontextmanager
async def process(setup: PollingSetup) -> AsyncIterator[asyncio.subprocess.Process]:
    """A relay process that holds the shard, killed after the body if it still lives."""
    started = await asyncio.create_subprocess_exec(
        *setup.command(), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: setup.value(HOLDER))
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def has_all(count: int) -> Any:
    return lambda records: len({json.loads(r.value)["n"] for r in records}) >= count


def assert_order(records: list[Any]) -> None:
    """Leaving repetitions out, the rows of each key are in their order."""
    found = without_repeats(records)
    assert all(numbers == sorted(numbers) for numbers in found.values())


async def arrives_after(setup: PollingSetup, count: int) -> None:
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        records = await reader.read(has_all(count))
    assert_order(records)
    await eventually(setup.is_empty)


async def test_kafka_killed_and_started_again(setup: PollingSetup, kafka: LocalKafka) -> None:
    async with streaming(setup.polling()):
        inserting = asyncio.create_task(setup.insert(0, 20_000))
        await asyncio.sleep(0)
        await asyncio.to_thread(kafka.kill)
        await inserting
        await asyncio.to_thread(kafka.start)
        await setup.insert(20_000, 20_100)
        await arrives_after(setup, 20_100)


async def test_frozen_kafka_fills_the_bound_and_the_shards_stay_ours(
    setup: PollingSetup, kafka: LocalKafka
) -> None:
    relay = setup.polling(max_rows=500)
    async with streaming(relay):
        await setup.insert(0, 10)
        await arrives_after(setup, 10)
        holder = await setup.value(HOLDER)
        kafka.pause()
        try:
            await setup.insert(10, 20_000)

            async def does_not_acknowledge() -> bool:
                # Longer than the lease.
                return "kafka" in relay.health.missing()

            await eventually(does_not_acknowledge)
            assert not relay.health.stuck()
            assert await setup.rows_left() == 19_990
        finally:
            kafka.cont()
        await arrives_after(setup, 20_000)
        assert await setup.value(HOLDER) == holder
        assert not relay.health.missing()


async def test_postgres_killed_and_started_again(
    setup: PollingSetup, postgres: LocalPostgres
) -> None:
    async with streaming(setup.polling()):
        await setup.insert(0, 5_000)
        await asyncio.to_thread(postgres.kill)
        await asyncio.to_thread(postgres.start)
        await setup.insert(5_000, 5_100)
        await arrives_after(setup, 5_100)


async def test_postgres_frozen_for_longer_than_the_lease(
    setup: PollingSetup, postgres: LocalPostgres
) -> None:
    relay = setup.polling()
    async with streaming(relay):
        await setup.insert(0, 1_000)
        await arrives_after(setup, 1_000)
        postgres.pause()
        try:

            async def has_given_up() -> bool:
                return "shards" in relay.health.missing()

            await eventually(has_given_up)
        finally:
            postgres.cont()
        await setup.insert(1_000, 1_100)
        await arrives_after(setup, 1_100)


@pytest.mark.parametrize("ended", ["killed", "asked to end"])
async def test_a_standby_takes_over(setup: PollingSetup, ended: str) -> None:
    async with (
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
        process(setup) as first,
    ):
        standby = setup.polling()
        await standby.start()
        async with running(standby), numbered_writers(setup.dsn, 3) as writers:
            await reader.read(writers.newer_rows_have_come())
            assert "shards" in standby.health.missing()
            began = time.monotonic()
            first.send_signal(signal.SIGKILL if ended == "killed" else signal.SIGTERM)
            await first.wait()

            async def has_taken_over() -> bool:
                return not standby.health.missing()

            await eventually(has_taken_over, every_s=0.01)
            took = time.monotonic() - began
            await reader.read(writers.newer_rows_have_come())
            await writers.stop()
            await reader.read(writers.all_have_come)
            await eventually(setup.is_empty)
        assert without_repeats(await reader.rest()) == writers.all_numbers()
        assert took < (
            TAKEN_OVER_AFTER_A_KILL_S if ended == "killed" else TAKEN_OVER_AFTER_AN_END_S
        )
        if ended != "killed":
            numbers = [json.loads(record.value)["n"] for record in reader.records]
            assert len(numbers) == sum(map(len, writers.all_numbers().values()))


async def test_a_frozen_relay_stops_by_its_own_clock_and_its_standby_goes_on(
    setup: PollingSetup,
) -> None:
    async with (
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
        process(setup) as first,
    ):
        standby = setup.polling()
        await standby.start()
        async with running(standby), numbered_writers(setup.dsn, 3) as writers:
            await reader.read(writers.newer_rows_have_come())
            first.send_signal(signal.SIGSTOP)

            async def has_taken_over() -> bool:
                return not standby.health.missing()

            await eventually(has_taken_over)
            await reader.read(writers.newer_rows_have_come())
            first.send_signal(signal.SIGCONT)
            await reader.read(writers.newer_rows_have_come())
            await writers.stop()
            await reader.read(writers.all_have_come)
            await eventually(setup.is_empty)
            # Still the standby: the one that was frozen stands by now, and has written nothing of what came after.
            assert not standby.health.missing()
            first.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(first.wait(), 15) == 0
        assert without_repeats(await reader.rest()) == writers.all_numbers()


async def test_relays_share_the_keys_and_each_keeps_its_order(setup: PollingSetup) -> None:
    shared = PollingSetup(
        dsn=setup.dsn, bootstrap_servers=setup.bootstrap_servers, topics=setup.topics, shards=4
    )
    holders = (
        "SELECT count(DISTINCT holder) FROM relay_shard WHERE expires > clock_timestamp() "
        "HAVING count(*) = 4"
    )

    async def are(number: int) -> bool:
        return bool(await shared.value(holders) == number)

    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(shared.polling()), numbered_writers(setup.dsn, 8) as writers:
            await reader.read(writers.newer_rows_have_come())
            async with streaming(shared.polling()):
                await eventually(lambda: are(2))
                await reader.read(writers.newer_rows_have_come())
                await setup.insert(0, 2_000, keys=200)
            await eventually(lambda: are(1))
            await reader.read(writers.newer_rows_have_come())
            await writers.stop()
            await reader.read(writers.all_have_come)
            await eventually(setup.is_empty)
        found = without_repeats(await reader.rest())
    expected = writers.all_numbers()
    assert {key: found[key] for key in expected} == expected
    others = [numbers for key, numbers in found.items() if key not in expected]
    assert sorted(n for numbers in others for n in numbers) == list(range(2_000))
    assert all(numbers == sorted(numbers) for numbers in others)
