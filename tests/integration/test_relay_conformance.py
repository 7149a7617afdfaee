"""The relay and Debezium with the shipped configuration make the same records of the same rows.

CONFORMANCE_ROWS=100000 is the long form, CONFORMANCE_SEED the rows of another seed.
"""

import asyncio
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import REGISTRY

import devservers
import streams
from devservers.connect import NO_MAVEN, LocalConnect, running_connect
from devservers.debezium import shipped_configuration
from devservers.settings import DEV_MAVEN
from streams.adapters.kafka import create_topics
from streams.domain.topics import Topics
from tests.conftest import PARTITIONS
from tests.integration.conformance_rows import AGGREGATES, Generator, write
from tests.integration.numbered_rows import NumberedWriters, numbered_writers, without_repeats
from tests.integration.relay_setup import Reader, Setup, eventually, streaming

ROWS: Final = int(os.environ.get("CONFORMANCE_ROWS", "2000"))
SEED: Final = int(os.environ.get("CONFORMANCE_SEED", "1"))
WITHIN_S: Final = 120.0 + ROWS / 100

pytestmark = [pytest.mark.servers, pytest.mark.timeout(int(2 * WITHIN_S) + 300)]


class Difference(StrEnum):
    """Every difference on purpose, as docs/relay.md names it."""

    TRACEPARENT = "header `traceparent`"
    TIMESTAMP = "time stamp of the record"
    NO_KEY = "a row with an empty key"


def test_the_documentation_lists_the_differences_that_are_known_here() -> None:
    text = Path(streams.__file__).parent.parent.joinpath("docs/relay.md").read_text("utf-8")
    section = text.split("## What differs from Debezium\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    assert rows == list(Difference)


@pytest.fixture
def connect(worker: LocalConnect) -> LocalConnect:
    """The worker, whatever the test before has done to it; no connector runs."""
    worker.start()
    return worker


@pytest.fixture(scope="module")
def worker(servers: devservers.Servers) -> Iterator[LocalConnect]:
    """A worker with Debezium on its class path. What cannot be fetched fails the tests."""
    if os.environ.get(DEV_MAVEN) == NO_MAVEN:
        pytest.skip(f"{DEV_MAVEN} says that there is no Maven")
    with running_connect(servers.kafka.bootstrap_servers) as started:
        yield started


@pytest.fixture
async def setup(servers: devservers.Servers, database_dsn: str, topics: Topics) -> Setup:
    made = Setup(dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics)
    await made.make_slot()
    return made


@pytest.fixture
async def debezium(connect: LocalConnect, setup: Setup) -> AsyncIterator[Setup]:
    """Debezium, streaming the same feed through a slot of its own to topics of its own."""
    other = Setup(
        dsn=setup.dsn,
        bootstrap_servers=setup.bootstrap_servers,
        topics=Topics(prefix=f"{setup.topics.prefix}debezium."),
    )
    await create_topics(
        other.bootstrap_servers, other.topics, partitions=PARTITIONS, replication_factor=-1
    )
    await other.make_slot()
    config = shipped_configuration(other.dsn, slot=other.slot, topic_prefix=other.topics.prefix)
    await asyncio.to_thread(connect.configure, other.slot, config)
    await asyncio.to_thread(connect.wait_until_running, other.slot)
    yield other
    await asyncio.to_thread(connect.remove, other.slot)

    await eventually(lambda: _is_free(other))


async def test_the_same_rows_become_the_same_records_in_the_same_order(
    setup: Setup, debezium: Setup
) -> None:
    changes = Generator(SEED).writers(ROWS, writers=4)
    expected = [row for writer in changes for change in writer for row in change.committed()]
    contexts = {str(row.id).encode(): row.traceparent for row in expected}
    keyless = sorted(str(row.id) for row in expected if not row.aggregateid)
    count = len(expected) + 3000
    async with (
        streaming(setup.relay()),
        Reader(setup.bootstrap_servers, *_names(setup)) as ours,
        Reader(setup.bootstrap_servers, *_names(debezium)) as theirs,
    ):
        await asyncio.gather(*(write(setup.dsn, writer) for writer in changes))
        for reader, without in ((ours, keyless), (theirs, [])):
            await reader.read(_at_least(count - len(without)), within_s=WITHIN_S)
            await reader.rest()
        refused = await setup.value(
            "SELECT array_agg(id::text ORDER BY id::text) FROM relay_refused WHERE reason = 'no-key'"
        )
    assert keyless
    assert refused == keyless
    assert sorted(_id(record) for record in theirs.records if record.key == b"") == keyless
    mine = _by_partition(setup, ours.records)
    golden = _by_partition(debezium, [record for record in theirs.records if record.key])
    assert mine.keys() == golden.keys()
    for place, records in golden.items():
        complete = [_with_context(record, contexts) for record in records]
        for number, (found, record) in enumerate(zip(mine[place], complete, strict=False)):
            assert found == record, f"{place}, record {number}, seed {SEED}"
        assert len(mine[place]) == len(complete), f"{place}, seed {SEED}"


Comparable = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _at_least(count: int) -> Callable[[list[Any]], bool]:
    return lambda found: len(found) >= count


def _id(record: Any) -> str:
    return str(dict(record.headers)["id"], "ascii")


def _names(setup: Setup) -> list[str]:
    return [setup.topics.of_aggregate(name) for name in AGGREGATES]


def _by_partition(setup: Setup, records: list[Any]) -> dict[tuple[str, int], list[Comparable]]:
    """Key, value and headers of each record, by topic without its prefix and by partition, in the partition's order."""
    found = defaultdict(list)
    for record in sorted(records, key=lambda record: record.offset):
        place = record.topic.removeprefix(setup.topics.prefix), record.partition
        found[place].append((record.key, record.value, tuple(record.headers)))
    return found


def _with_context(record: Comparable, contexts: dict[bytes, str | None]) -> Comparable:
    """Debezium's record with the header that only the relay writes, at the relay's place."""
    key, value, headers = record
    found = contexts.get(dict(headers)["id"] or b"")
    if found is None:
        return record
    return key, value, (*headers[:3], ("traceparent", found.encode()), *headers[3:])


async def test_debezium_and_the_relay_take_turns_on_one_slot_and_lose_nothing(
    setup: Setup, connect: LocalConnect
) -> None:
    """The procedure of ops/debezium/README.md, while three writers go on; the first rows are there before the connector.

    The first time the connector is stopped in good order, the second time its worker is killed.
    """
    name, rebuilds = setup.slot, _rebuilds()
    config = shipped_configuration(setup.dsn, slot=name, topic_prefix=setup.topics.prefix)
    async with (
        Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
        numbered_writers(setup.dsn, 3) as writers,
    ):
        await eventually(writers.have_begun)
        await asyncio.to_thread(connect.configure, name, config)
        await asyncio.to_thread(connect.wait_until_running, name)
        await reader.read(writers.newer_rows_have_come(), within_s=WITHIN_S)
        await asyncio.to_thread(connect.pause_connector, name)
        async with _the_relay_has_its_turn(setup, reader, writers):
            pass
        await asyncio.to_thread(connect.forget_offsets, name)
        await asyncio.to_thread(connect.resume_connector, name)
        await asyncio.to_thread(connect.wait_until_running, name)
        await reader.read(writers.newer_rows_have_come(), within_s=WITHIN_S)
        await asyncio.to_thread(connect.kill)
        async with _the_relay_has_its_turn(setup, reader, writers):
            await writers.stop()
            await reader.read(writers.all_have_come, within_s=WITHIN_S)
        records = await reader.rest()
    assert without_repeats(records) == writers.all_numbers()
    assert (
        _rebuilds() == rebuilds
    )  # the relay trusted the slot: nothing was sent again on suspicion


@asynccontextmanager
async def _the_relay_has_its_turn(
    setup: Setup, reader: Reader, writers: NumberedWriters
) -> AsyncIterator[None]:
    """From the moment at which Debezium has let go of the slot."""
    await eventually(lambda: _is_free(setup))
    await setup.execute("DELETE FROM relay_checkpoint WHERE slot = $1", setup.slot)
    async with streaming(setup.relay()):
        await reader.read(writers.newer_rows_have_come(), within_s=WITHIN_S)
        yield


async def _is_free(setup: Setup) -> bool:
    return await setup.slot_pid() is None


def _rebuilds() -> float | None:
    return REGISTRY.get_sample_value("mailstreams_relay_slot_rebuilds_total")
