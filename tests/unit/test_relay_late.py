"""Suppressions on their way when a producer was given up: whom it concerns, and when they are told again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from streams.adapters import kafka_batches
from streams.adapters.kafka_batches import KafkaBatches
from streams.domain.acknowledgement import AcknowledgedPrefix, Lsn, Transaction
from streams.domain.errors import Unavailable
from streams.domain.feed_rows import FeedRow
from streams.ports.relay import RelayStore
from streams.relay_late import PAGE, WAIT_S, LateSuppressions

ANN, BOB = b"a" * 32, b"b" * 32


@dataclass
class Store:
    """Remembers what is announced, unless it is away."""

    announced: list[list[str]] = field(default_factory=list)
    away: bool = False
    now: float = 0.0

    async def announce(self, keys: Sequence[str]) -> None:
        if self.away:
            raise Unavailable("PostgreSQL is away")
        self.announced.append(list(keys))

    def late(self) -> LateSuppressions:
        return LateSuppressions(cast(RelayStore, cast(Any, self)), clock=lambda: self.now)


async def test_recipients_are_told_again_once_nothing_can_come_late_any_more() -> None:
    store = Store()
    late = store.late()
    late.add([ANN, b"heartbeat-" + b"0" * 22])
    await late.announce()
    store.now = WAIT_S - 1
    late.add([ANN, BOB])
    store.now = WAIT_S + 1
    await late.announce()
    assert store.announced == []
    store.now = 2 * WAIT_S
    await late.announce()
    await late.announce()
    assert store.announced == [[ANN.decode(), BOB.decode()]]


async def test_what_could_not_be_told_stays_due_and_many_go_page_by_page() -> None:
    store = Store(away=True)
    late = store.late()
    late.add(b"%032x" % n for n in range(PAGE + 1))
    store.now = WAIT_S
    with pytest.raises(Unavailable):
        await late.announce()
    store.away = False
    for _ in range(3):
        await late.announce()
    assert [len(keys) for keys in store.announced] == [PAGE, 1]


class Builder:
    def __init__(self) -> None:
        self.records = 0

    def append(self, **_: object) -> object:
        self.records += 1
        return self

    def size(self) -> int:
        return self.records


class Producer:
    """Takes every batch and acknowledges what the test says."""

    def __init__(self) -> None:
        self.acknowledgements: dict[str, asyncio.Future[None]] = {}
        self.client = self

    async def fetch_all_metadata(self) -> Any:
        return self

    def topics(self) -> set[str]:
        return {"mail.suppressions", "mail.outbox.bulk"}

    async def partitions_for(self, _: str) -> set[int]:
        return {0}

    def create_batch(self) -> Builder:
        return Builder()

    async def send_batch(self, _: Builder, topic: str, *, partition: int) -> "asyncio.Future[None]":
        assert partition == 0
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.acknowledgements[topic] = future
        return future


def row(aggregate: bytes, key: bytes) -> FeedRow:
    transaction = Transaction(1, 0.0, Lsn(9))
    return (transaction, b"id", aggregate, key, b"kind", b"{}", None, b"1")


@pytest.mark.parametrize(("acknowledged", "expected"), [(True, []), (False, [ANN])])
async def test_keys_of_suppressions_that_are_not_acknowledged_are_given_back_on_closing(
    monkeypatch: pytest.MonkeyPatch, acknowledged: bool, expected: list[bytes]
) -> None:
    producer = Producer()

    async def connected(_: str) -> Producer:
        return producer

    async def abandon(_: Producer) -> None: ...

    monkeypatch.setattr(kafka_batches, "connected", connected)
    monkeypatch.setattr(kafka_batches, "abandon", abandon)
    sink = KafkaBatches(
        "nowhere",
        topic_prefix="mail.",
        kinds={"mail.suppressions": "suppressions", "mail.outbox.bulk": "outbox-bulk"},
        linger_s=0.0,
        max_rows=100,
        max_bytes=10**6,
    )
    progress = asyncio.Event()
    await sink.open(AcknowledgedPrefix(Lsn(0)), on_progress=progress.set, on_failure=lambda _: None)
    await sink.know_topics([b"suppressions", b"outbox.bulk"])
    sink.append([row(b"suppressions", ANN), row(b"outbox.bulk", BOB)])
    sink.flush()
    async with asyncio.timeout(60):
        while len(producer.acknowledgements) < 2:  # noqa: ASYNC110 the producer has no signal
            await asyncio.sleep(0.001)
        if acknowledged:
            producer.acknowledgements["mail.suppressions"].set_result(None)
            await progress.wait()
    assert await sink.close() == expected
