"""What the polling relay removes, and when: never before Kafka has it; and that it writes nothing once its lease has run out."""
# ruff: noqa: ARG002  the fakes take what the ports give

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streams.domain.acknowledgement import AcknowledgedPrefix, Lsn, Outstanding, Transaction
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.feed_rows import FeedRow, RecordRefused, Refusal
from streams.domain.polling import Acknowledged, Renewal, RowName
from streams.ports.relay_polling import Page, Share
from streams.relay_polling import PollingSettings, RelayPolling


class Sink:
    """Kafka that acknowledges when the test says so. Each append is one batch."""

    largest_record = 1000
    bytes_in_flight = 0

    def __init__(self) -> None:
        self.batches: list[tuple[Outstanding, list[FeedRow]]] = []
        self.appended: list[FeedRow] = []
        self.opened = self.closed = 0

    async def open(
        self,
        prefix: AcknowledgedPrefix,
        *,
        on_progress: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.prefix, self.on_progress, self.on_failure = prefix, on_progress, on_failure
        self.opened += 1

    async def know_topics(self, aggregates: Sequence[bytes]) -> None: ...

    def append(self, rows: Sequence[FeedRow]) -> None:
        self.appended += rows
        self.batches.append((self.prefix.opened(rows[0][0]), list(rows)))

    def acknowledge(self, number: int) -> None:
        batch, _ = self.batches.pop(number)
        self.prefix.acknowledged(batch)
        self.on_progress()

    @property
    def rows_in_flight(self) -> int:
        return sum(len(rows) for _, rows in self.batches)

    def flush(self) -> None: ...

    async def room(self, timeout_s: float) -> bool:
        return True

    async def drained(self, timeout_s: float) -> bool:
        return not self.batches

    async def close(self) -> list[bytes]:
        self.batches.clear()
        self.closed += 1
        return []


class Store:
    """A feed in memory."""

    def __init__(self) -> None:
        self.feed: dict[int, bytes] = {}
        self.away = False
        self.taken = False
        self.wrong: Misconfigured | None = None
        self.refused: list[tuple[bytes | None, Refusal]] = []

    def insert(self, *numbers: int) -> None:
        self.feed.update(dict.fromkeys(numbers, b"k"))

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check_setup(self) -> None:
        if self.wrong is not None:
            raise self.wrong

    async def prepare(self, shards: int) -> None: ...

    async def begin(self) -> Acknowledged | None:
        return None

    async def renew(self, shards: int) -> Renewal | None:
        return Renewal(held=[] if self.taken else [0], free=0, pollers=1)

    async def claim(self, shards: int, most: int) -> list[int]:
        return []

    async def release(self, held: Sequence[int]) -> None: ...

    async def leave(self) -> None: ...

    async def end(self) -> int:
        return max(self.feed, default=0)

    async def writers(self) -> Collection[str]:
        return ()

    async def page(self, share: Share, *, ordinal: int, after: int, end: int) -> Page:
        transaction = Transaction(ordinal, 1.0, Lsn(ordinal))
        numbers = sorted(n for n in self.feed if after < n <= end)
        return Page(
            transaction=transaction,
            rows=[
                (transaction, b"%d" % n, b"topic", b"key", b"t", b"{}", None, b"%d" % n)
                for n in numbers
            ],
            names=[(n, str(n), "") for n in numbers],
            complete=True,
        )

    async def behind(self, share: Share, *, after: int, end: int, most: int) -> list[RowName]:
        return []

    async def acknowledged(self, done: Acknowledged, **_: int) -> list[RowName]:
        return []

    async def delete(self, names: Sequence[RowName]) -> None:
        if self.away:
            raise Unavailable("PostgreSQL is shutting down")
        for number, _, _ in names:
            self.feed.pop(number, None)

    async def forget_acknowledged(self) -> None: ...

    async def set_aside(self, row: FeedRow, reason: Refusal, detail: str | None) -> None:
        self.refused.append((row[1], reason))

    async def announce(self, keys: Sequence[str]) -> None:
        raise AssertionError("no suppression was on its way")


class World:
    def __init__(self) -> None:
        self.sink, self.store = Sink(), Store()
        settings = PollingSettings(shards=1, interval_s=0.01, drain_s=1)
        self.relay = RelayPolling(settings, sink=self.sink, store=self.store)

    async def insert(self, *numbers: int) -> None:
        """Rows that are read as one batch."""
        before = len(self.sink.appended)
        self.store.insert(*numbers)
        await until(lambda: len(self.sink.appended) == before + len(numbers))


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 conditions of many kinds
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World()
    await world.relay.start()
    run = asyncio.create_task(world.relay.run())
    await until(lambda: "shards" not in world.relay.health.missing())
    try:
        yield world
    finally:
        await world.relay.stop()
        await run


async def test_a_row_is_removed_once_everything_up_to_it_is_acknowledged() -> None:
    async with running() as world:
        await world.insert(1, 2)
        await world.insert(3)
        world.sink.acknowledge(1)
        await asyncio.sleep(0.1)
        assert set(world.store.feed) == {1, 2, 3}
        world.sink.acknowledge(0)
        await until(lambda: not world.store.feed)
    assert len(world.sink.appended) == 3


async def test_what_is_not_acknowledged_at_the_end_stays_in_the_feed() -> None:
    async with running() as world:
        await world.insert(1)
        world.sink.acknowledge(0)
        await world.insert(2)
    assert set(world.store.feed) == {2}


async def test_a_failed_delivery_begins_again_with_what_is_in_the_feed_in_order() -> None:
    async with running() as world:
        await world.insert(1, 2)
        await world.insert(3)
        world.sink.acknowledge(0)
        world.sink.on_failure(Unavailable("Kafka did not take a batch"))
        await until(lambda: world.sink.opened == 2 and len(world.sink.appended) == 4)
        assert [row[1] for row in world.sink.appended] == [b"1", b"2", b"3", b"3"]
        world.sink.acknowledge(0)
        await until(lambda: not world.store.feed)


async def test_rows_that_cannot_be_removed_are_sent_again_and_not_forgotten() -> None:
    async with running() as world:
        await world.insert(1)
        world.store.away = True
        world.sink.acknowledge(0)
        await until(lambda: world.sink.closed)
        world.store.away = False
        await until(lambda: len(world.sink.appended) == 2)
        world.sink.acknowledge(0)
        await until(lambda: not world.store.feed)


async def test_a_refused_record_is_set_aside_and_may_come_again_once_it_was_mended() -> None:
    async with running() as world:
        await world.insert(7)
        world.sink.on_failure(RecordRefused(b"7", "too large"))
        await until(lambda: world.store.refused)
        assert world.store.refused == [(b"7", Refusal.REFUSED_BY_KAFKA)]
        await until(lambda: not world.store.feed)
        await world.insert(8)
        world.sink.acknowledge(0)
        await until(lambda: not world.store.feed)
        await world.insert(7)
        assert len(world.store.refused) == 1


async def test_once_the_lease_is_another_relays_nothing_is_written() -> None:
    async with running() as world:
        await world.insert(1)
        world.store.taken = True
        world.store.insert(2)
        await until(lambda: "shards" in world.relay.health.missing())
        written = len(world.sink.appended)
        world.store.insert(3)
        await asyncio.sleep(0.2)
        assert len(world.sink.appended) == written
        assert world.sink.closed
        world.store.taken = False
        await until(lambda: {row[1] for row in world.sink.appended} == {b"1", b"2", b"3"})


async def test_a_relay_that_finds_one_of_the_other_mode_ends() -> None:
    world = World()
    world.store.taken = True
    await world.relay.start()
    run = asyncio.create_task(world.relay.run())
    await until(lambda: "every shard" in world.relay.health.missing().get("shards", ""))
    assert world.relay.health.stuck() == {}
    world.store.wrong = Misconfigured("a relay in wal mode streams")
    world.store.taken = False
    with pytest.raises(Misconfigured):
        await run
    await world.relay.stop()


async def test_stop_before_start_returns() -> None:
    await World().relay.stop()
