"""How records of many callers share batches, and that one partition in trouble is nobody else's."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import NotLeaderForPartitionError

from streams.adapters.kafka_lanes import Lanes
from streams.domain.errors import Unavailable
from streams.domain.partitioner import partition_of
from streams.domain.records import NewRecord

PARTITIONS = 4
ROOM = 3


@dataclass
class Builder:
    """Holds ROOM records."""

    values: list[bytes] = field(default_factory=list)

    def append(
        self, *, timestamp: int, key: bytes | None, value: bytes, headers: list[Any]
    ) -> object:
        assert timestamp > 0
        assert key is None or isinstance(key, bytes)
        assert isinstance(headers, list)
        if len(self.values) == ROOM:
            return None
        self.values.append(value)
        return object()


@dataclass
class Producer:
    """Keeps batches until the test acknowledges them."""

    sent: list[tuple[int, list[bytes], asyncio.Future[None]]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    may_send: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_send.set()

    @property
    def client(self) -> Any:
        return self

    @property
    def cluster(self) -> Any:
        return self

    def partitions_for_topic(self, topic: str) -> set[int]:
        assert topic == "events"
        return set(range(PARTITIONS))

    def create_batch(self) -> Builder:
        return Builder()

    async def send_batch(
        self, builder: Builder, topic: str, *, partition: int
    ) -> asyncio.Future[None]:
        assert topic == "events"
        await self.may_send.wait()
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent.append((partition, builder.values, acknowledged))
        self.arrived.set()
        return acknowledged

    async def batches(self, count: int) -> list[tuple[int, list[bytes], asyncio.Future[None]]]:
        """Once so many have been handed over."""
        async with asyncio.timeout(30):
            while len(self.sent) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.sent


class Rig:
    def __init__(self, timeout_s: float = 30.0) -> None:
        self.producer = Producer()
        self.failures = 0
        self.lanes = Lanes(
            cast(AIOKafkaProducer, self.producer), timeout_s=timeout_s, on_failure=self._failed
        )

    def _failed(self) -> None:
        self.failures += 1


def record(value: bytes, *, partition: int | None = 0, key: bytes | None = None) -> NewRecord:
    return NewRecord(topic="events", key=key, value=value, partition=partition)


def values(batches: Sequence[tuple[int, list[bytes], Any]]) -> list[tuple[int, list[bytes]]]:
    return [(partition, held) for partition, held, _ in batches]


async def test_callers_at_once_share_a_batch_of_each_partition() -> None:
    rig = Rig()
    calls = [rig.lanes.put([record(b"%d" % n, partition=n % 2)]) for n in range(4)]
    batches = await rig.producer.batches(2)
    assert values(batches) == [(0, [b"0", b"2"]), (1, [b"1", b"3"])]
    batches[0][2].set_result(None)
    await asyncio.gather(calls[0], calls[2])
    assert not calls[1].done()
    batches[1][2].set_result(None)
    await asyncio.gather(*calls)


async def test_a_caller_waits_for_all_of_its_records() -> None:
    rig = Rig()
    call = rig.lanes.put([record(b"a", partition=0), record(b"b", partition=1)])
    batches = await rig.producer.batches(2)
    batches[0][2].set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not call.done()
    batches[1][2].set_result(None)
    await call


async def test_a_key_has_the_partition_of_javas_default_partitioner() -> None:
    rig = Rig()
    keys = [b"%032d" % n for n in range(40)]
    for key in keys:
        rig.lanes.put([record(key, partition=None, key=key)])
    async with asyncio.timeout(30):
        while sum(len(held) for _, held, _ in rig.producer.sent) < len(keys):
            for _, _, acknowledged in rig.producer.sent:
                if not acknowledged.done():
                    acknowledged.set_result(None)
            await asyncio.sleep(0.001)
    assert all(
        partition == partition_of(value, PARTITIONS)
        for partition, held, _ in rig.producer.sent
        for value in held
    )


async def test_what_does_not_fit_goes_with_the_next_batch_once_the_first_is_acknowledged() -> None:
    rig = Rig()
    calls = [rig.lanes.put([record(b"%d" % n)]) for n in range(ROOM + 1)]
    (first,) = await rig.producer.batches(1)
    assert first[1] == [b"0", b"1", b"2"]
    first[2].set_result(None)
    second = (await rig.producer.batches(2))[1]
    assert second[1] == [b"3"]
    second[2].set_result(None)
    await asyncio.gather(*calls)


async def test_a_partition_without_a_leader_holds_up_nobody_else() -> None:
    rig = Rig()
    stuck = rig.lanes.put([record(b"stuck", partition=0)])
    await rig.producer.batches(1)
    for n in range(3):
        call = rig.lanes.put([record(b"%d" % n, partition=1)])
        (await rig.producer.batches(n + 2))[-1][2].set_result(None)
        await call
    assert not stuck.done()


async def test_what_comes_while_a_batch_is_handed_over_goes_afterwards() -> None:
    rig = Rig()
    rig.producer.may_send.clear()
    calls = [rig.lanes.put([record(b"first")])]
    for n in range(5):
        await asyncio.sleep(0.003)  # longer than the linger, while the first cannot be handed over
        calls.append(rig.lanes.put([record(b"%d" % n, partition=n % 2)]))
    rig.producer.may_send.set()
    async with asyncio.timeout(30):
        while not all(call.done() for call in calls):
            rig.producer.arrived.clear()
            for _, _, acknowledged in rig.producer.sent:
                if not acknowledged.done():
                    acknowledged.set_result(None)
            await asyncio.sleep(0.001)
    assert sum(len(held) for _, held, _ in rig.producer.sent) == len(calls)


async def test_a_failed_batch_fails_every_caller_at_once_and_is_told_once() -> None:
    rig = Rig()
    calls = [rig.lanes.put([record(b"%d" % n, partition=n)]) for n in range(3)]
    batches = await rig.producer.batches(3)
    batches[1][2].set_exception(NotLeaderForPartitionError())
    for call in calls:
        with pytest.raises(Unavailable, match="NotLeaderForPartition"):
            await call
    batches[0][2].set_result(None)
    batches[2][2].set_exception(NotLeaderForPartitionError())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.failures == 1
    with pytest.raises(Unavailable):
        rig.lanes.put([record(b"later")])


async def test_who_is_not_acknowledged_in_time_is_told_so() -> None:
    rig = Rig(timeout_s=0.05)
    call = rig.lanes.put([record(b"slow")])
    with pytest.raises(Unavailable, match="no acknowledgement within"):
        await call
    assert rig.failures == 1


async def test_a_caller_that_gives_up_takes_nothing_from_the_others() -> None:
    rig = Rig(timeout_s=0.2)
    gone, stays = rig.lanes.put([record(b"gone")]), rig.lanes.put([record(b"stays")])
    gone.cancel()
    ((_, held, acknowledged),) = await rig.producer.batches(1)
    assert held == [b"gone", b"stays"]
    acknowledged.set_result(None)
    await stays
    assert rig.failures == 0


async def test_closing_waits_a_while_and_tells_who_still_waits() -> None:
    rig = Rig()
    call = rig.lanes.put([record(b"never")])
    await rig.lanes.drained(0.05)
    with pytest.raises(Unavailable, match="closed"):
        await call
    assert rig.failures == 0
