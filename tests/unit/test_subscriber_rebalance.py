"""What the subscriber commits while partitions come and go, and while commits fail. Time stands in the hands of a consumer of ours."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
)

from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import DeliveryEvent, EventId, EventType, encode
from streams.subscribers import Subscriber, Subscription
from streams.subscribers.window import Window

TOPIC = "mail.delivery-events"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def record(partition: TopicPartition, offset: int) -> ConsumerRecord[bytes, bytes]:
    made = DeliveryEvent(
        id=EventId(f"{partition.partition}-{offset}"),
        type=EventType.DELIVERED,
        time=datetime(2026, 1, 15, tzinfo=UTC),
        recipient_key=RecipientKey("0" * 32),
    )
    return ConsumerRecord(
        topic=TOPIC, partition=partition.partition, offset=offset, timestamp=0, timestamp_type=0,
        key=b"0" * 32, value=encode(made), checksum=None, serialized_key_size=32,
        serialized_value_size=0, headers=(),
    )  # fmt: skip


@dataclass(slots=True)
class Consumer:
    """Gives what a test puts into `next`; nobody else's turn comes meanwhile."""

    next: list[dict[TopicPartition, list[Any]]] = field(default_factory=list)
    commits: list[dict[TopicPartition, int]] = field(default_factory=list)
    failure: KafkaError | None = None
    listener: Any = None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def topics(self) -> set[str]:
        return {TOPIC}

    def subscribe(self, _: Iterable[str], *, listener: Any) -> None:
        self.listener = listener

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[Any]]:
        return self.next.pop(0)

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        if self.failure is not None:
            raise self.failure
        self.commits.append(dict(offsets))


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer()
    monkeypatch.setattr(Subscription, "consumer", lambda _: made)
    return made


@pytest.fixture
async def events(consumer: Consumer) -> AsyncIterator[Subscriber]:
    settings = Subscription(
        bootstrap_servers="localhost:9092", group="g", commit_every=3, commit_every_s=3600.0
    )
    async with Subscriber(settings) as entered:
        yield entered


def fetched(partition: TopicPartition, *offsets: int) -> dict[TopicPartition, list[Any]]:
    return {partition: [record(partition, offset) for offset in offsets]}


async def ids(events: Subscriber, count: int) -> list[str]:
    return [(await anext(events)).id for _ in range(count)]


async def test_what_is_done_is_committed_before_a_partition_goes_and_never_after(
    consumer: Consumer, events: Subscriber
) -> None:
    consumer.next = [fetched(P0, 0, 1, 2, 3) | fetched(P1, 0)]
    assert await ids(events, 2) == ["0-0", "0-1"]
    await consumer.listener.on_partitions_revoked({P0, P1})
    assert consumer.commits == [{P0: 1}]
    await consumer.listener.on_partitions_assigned({P1})
    consumer.next = [fetched(P1, 0, 1, 2, 3)]
    assert await ids(events, 4) == ["1-0", "1-1", "1-2", "1-3"]
    assert consumer.commits[1:] == [{P1: 2}]


async def test_what_waited_of_a_lost_partition_is_not_handed_out(
    consumer: Consumer, events: Subscriber
) -> None:
    consumer.next = [fetched(P0, 0, 1, 2) | fetched(P1, 0)]
    assert await ids(events, 1) == ["0-0"]
    await consumer.listener.on_partitions_revoked({P0})
    assert await ids(events, 1) == ["1-0"]


async def test_an_event_finished_while_its_partition_was_away_is_not_handed_out_again(
    consumer: Consumer, events: Subscriber
) -> None:
    consumer.next = [fetched(P0, 0, 1)]
    assert await ids(events, 1) == ["0-0"]
    await consumer.listener.on_partitions_revoked({P0})
    await consumer.listener.on_partitions_assigned({P0})
    consumer.next = [fetched(P0, 0, 1, 2)]
    assert await ids(events, 2) == ["0-1", "0-2"]
    assert events.counts.duplicates == 1


async def test_a_commit_that_failed_goes_along_with_the_next(
    consumer: Consumer, events: Subscriber
) -> None:
    consumer.next = [fetched(P0, *range(8))]
    consumer.failure = KafkaConnectionError()
    await ids(events, 4)
    consumer.failure = None
    await ids(events, 3)
    assert consumer.commits == [{P0: 6}]
    assert (events.counts.commits, events.counts.commits_lost) == (1, 1)


async def test_a_commit_that_came_too_late_is_no_error(
    consumer: Consumer, events: Subscriber
) -> None:
    consumer.next = [fetched(P0, *range(5))]
    consumer.failure = CommitFailedError()
    assert len(await ids(events, 5)) == 5
    assert events.counts.commits_lost == 1


async def test_a_commit_that_is_not_allowed_ends_the_iteration(
    consumer: Consumer, events: Subscriber
) -> None:
    consumer.next = [fetched(P0, *range(5))]
    consumer.failure = GroupAuthorizationFailedError()
    with pytest.raises(GroupAuthorizationFailedError):
        await ids(events, 5)


@pytest.mark.parametrize("size", [1, 2, 10])
def test_the_window_remembers_at_least_its_size_and_at_most_twice_as_many(size: int) -> None:
    window = Window(size)
    for number in range(100):
        window.add([str(number)])
        held = [n for n in range(100) if str(n) in window]
        assert held == list(range(held[0], number + 1))
        assert min(size, number + 1) <= len(held) <= 2 * size
