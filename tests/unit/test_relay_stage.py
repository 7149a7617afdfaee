"""What the stage confirms, and when: never before Kafka has it, never before the position is stored."""
# ruff: noqa: ARG002  the fakes take what the ports give

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streams.domain.acknowledgement import AcknowledgedPrefix, Lsn, Outstanding, Transaction
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.feed_rows import FeedRow, RecordRefused, Refusal
from streams.domain.slots import Checkpoint, Cluster, NewSlot, Slot
from streams.relay import Relay
from tests.unit.test_relay_pgoutput import (
    ROW,
    TABLE,
    begin,
    commit,
    insert,
    keepalive,
    relation,
    values_of,
)

CLUSTER = Cluster(system_id="1", timeline=1)


class Source:
    """A server that sends what it is given; the journal is shared with the store."""

    backend_pid = 7

    def __init__(self, journal: list[tuple[str, int]]) -> None:
        self.journal = journal
        self.messages: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self.locked_by_another = False
        self.lost = False
        self.connections = self.closed = 0

    async def connect(self) -> None:
        self.connections += 1

    async def try_lock(self) -> bool:
        return not self.locked_by_another

    async def identify(self) -> Cluster:
        return CLUSTER

    async def create_slot(self) -> NewSlot:
        raise AssertionError("the slot is good")

    async def drop_slot(self) -> None:
        raise AssertionError("the slot is good")

    async def start(self, position: Lsn) -> bool:
        return True

    async def receive(self) -> list[bytes]:
        return await self.messages.get()

    def wake(self) -> None:
        self.messages.put_nowait([])

    def send_status(self, *, written: Lsn, flushed: Lsn) -> None:
        self.journal.append(("confirmed", flushed))

    async def close(self) -> None:
        self.closed += 1


class Sink:
    """Kafka that acknowledges when the test says so. Each append is one batch."""

    largest_record = 1000
    bytes_in_flight = 0

    def __init__(self) -> None:
        self.batches: list[tuple[Outstanding, list[FeedRow]]] = []
        self.appended: list[FeedRow] = []
        self.waited = 0

    async def open(
        self,
        prefix: AcknowledgedPrefix,
        *,
        on_progress: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.prefix, self.on_progress, self.on_failure = prefix, on_progress, on_failure

    async def know_topics(self, aggregates: Sequence[bytes]) -> None: ...

    def append(self, rows: Sequence[FeedRow]) -> None:
        self.appended += rows
        self.batches.append((self.prefix.opened(rows[0][0]), list(rows)))

    def acknowledge_all(self) -> None:
        for batch, _ in self.batches:
            self.prefix.acknowledged(batch)
        self.batches.clear()
        self.on_progress()

    @property
    def rows_in_flight(self) -> int:
        return sum(len(rows) for _, rows in self.batches)

    def flush(self) -> None: ...

    async def room(self, timeout_s: float) -> bool:
        return True

    async def drained(self, timeout_s: float) -> bool:
        self.waited += 1
        return not self.batches

    async def close(self) -> list[bytes]:
        self.batches.clear()
        return []


class Store:
    def __init__(self, journal: list[tuple[str, int]]) -> None:
        self.journal = journal
        self.away = False
        self.refused: list[tuple[bytes | None, Refusal]] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check_setup(self) -> None: ...

    async def slot(self) -> Slot | None:
        return Slot(
            plugin="pgoutput",
            here=True,
            active_pid=None,
            wal_status="reserved",
            confirmed=Lsn(10),
            lag_bytes=0,
            safe_wal_size=None,
        )

    async def checkpoint(self) -> Checkpoint | None:
        return Checkpoint(lsn=Lsn(10), cluster=CLUSTER)

    async def store_checkpoint(self, checkpoint: Checkpoint) -> None:
        if self.away:
            raise Unavailable("PostgreSQL is shutting down")
        self.journal.append(("stored", checkpoint.lsn))

    def snapshot(self, snapshot: str, transaction: Transaction) -> Any:
        raise AssertionError("the slot is good")

    async def set_aside(self, row: FeedRow, reason: Refusal, detail: str | None) -> None:
        self.refused.append((row[1], reason))

    async def announce(self, keys: Sequence[str]) -> None:
        raise AssertionError("no suppression was on its way")

    async def writing_transactions(self) -> list[str]:
        return []


class World:
    def __init__(self) -> None:
        self.journal: list[tuple[str, int]] = []
        self.source, self.sink = Source(self.journal), Sink()
        self.store = Store(self.journal)
        self.relay = Relay(source=self.source, sink=self.sink, store=self.store, drain_s=1)

    def send(self, *messages: bytes) -> None:
        self.source.messages.put_nowait(list(messages))

    def confirmed(self) -> int:
        return max((lsn for what, lsn in self.journal if what == "confirmed"), default=0)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 conditions of many kinds
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World()
    await world.relay.start()
    run = asyncio.create_task(world.relay.run())
    await until(lambda: "slot" not in world.relay.health.missing())
    try:
        yield world
    finally:
        await world.relay.stop()
        await run


def transaction(end: int) -> list[bytes]:
    return [relation(TABLE), begin(), insert(values_of(TABLE, ROW)), commit(end)]


async def test_a_transaction_is_confirmed_after_kafka_has_it_and_after_it_is_stored() -> None:
    async with running() as world:
        world.send(*transaction(50))
        await until(lambda: world.sink.appended)
        world.send(keepalive(60, reply=True))
        await until(lambda: world.journal)
        assert world.confirmed() == 10
        world.sink.acknowledge_all()
        await until(lambda: world.confirmed() == 60)
    assert world.journal.index(("stored", 60)) < world.journal.index(("confirmed", 60))


async def test_an_open_transaction_is_never_confirmed() -> None:
    async with running() as world:
        world.send(*transaction(50)[:3], keepalive(60, reply=True))
        await until(lambda: world.sink.appended)
        world.sink.acknowledge_all()
        world.send(keepalive(61, reply=True))
        await until(lambda: len(world.journal) >= 2)
        assert world.confirmed() == 10
    assert world.confirmed() == 10


async def test_an_idle_position_is_confirmed_at_once_when_the_server_asks() -> None:
    async with running() as world:
        world.send(keepalive(90, reply=True))
        await until(lambda: world.confirmed() == 90)


async def test_a_position_that_cannot_be_stored_is_not_confirmed_and_frees_the_slot() -> None:
    async with running() as world:
        world.store.away = True
        world.send(keepalive(90, reply=True))
        await until(lambda: world.source.closed)
        assert world.confirmed() <= 10
        world.store.away = False
        await until(lambda: world.source.connections > 1)


async def test_a_failed_delivery_begins_again_from_the_slot() -> None:
    async with running() as world:
        world.send(*transaction(50))
        await until(lambda: world.sink.appended)
        world.sink.on_failure(Unavailable("Kafka did not take a batch"))
        await until(lambda: world.source.connections > 1)
        assert world.confirmed() <= 10
        world.send(*transaction(50))
        await until(lambda: len(world.sink.appended) == 2)
        world.sink.acknowledge_all()
        await until(lambda: world.confirmed() == 50)


@pytest.mark.parametrize("lost", [False, True])
async def test_what_is_on_its_way_is_waited_for_while_no_other_relay_can_write(lost: bool) -> None:
    async with running() as world:
        world.send(*transaction(50))
        await until(lambda: world.sink.appended)
        world.source.lost = lost
        world.sink.on_failure(Unavailable("the stream ended"))
        await until(lambda: world.source.connections > 1)
        assert world.sink.waited == (0 if lost else 1)
        world.source.lost = False


async def test_nothing_is_written_once_the_connection_is_lost() -> None:
    async with running() as world:
        world.source.lost = True
        world.send(*transaction(50))
        await until(lambda: world.source.connections > 1)
        assert world.sink.appended == []
        world.source.lost = False
        world.send(*transaction(50))
        await until(lambda: world.sink.appended)


async def test_a_refused_record_is_set_aside_when_its_row_comes_again() -> None:
    async with running() as world:
        world.send(*transaction(50))
        await until(lambda: world.sink.appended)
        world.sink.on_failure(RecordRefused(ROW[0], "too large"))
        await until(lambda: world.source.connections > 1)
        world.send(*transaction(50))
        await until(lambda: world.store.refused)
        assert world.store.refused == [(ROW[0], Refusal.REFUSED_BY_KAFKA)]
        await until(lambda: world.confirmed() == 50)
        # Behind the slot nothing is left of it: the row may come again after it was mended.
        world.send(*transaction(70))
        await until(lambda: len(world.sink.appended) == 2)


async def test_a_standby_is_alive_and_not_ready() -> None:
    world = World()
    world.source.locked_by_another = True
    await world.relay.start()
    run = asyncio.create_task(world.relay.run())
    await until(lambda: "another relay" in world.relay.health.missing().get("slot", ""))
    assert world.relay.health.stuck() == {}
    world.source.locked_by_another = False
    await until(lambda: "slot" not in world.relay.health.missing())
    await world.relay.stop()
    await run


async def test_a_vanished_column_ends_the_stage() -> None:
    world = World()
    await world.relay.start()
    run = asyncio.create_task(world.relay.run())
    await until(lambda: "slot" not in world.relay.health.missing())
    world.send(relation(TABLE[:3]))
    with pytest.raises(Misconfigured):
        await run
    await world.relay.stop()


async def test_stop_before_start_returns() -> None:
    await World().relay.stop()
