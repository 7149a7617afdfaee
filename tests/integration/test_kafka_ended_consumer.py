"""A task inside aiokafka that has ended of an error nobody foresaw: the consumer is made anew, and reads on."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import pytest

import devservers
from streams.adapters.kafka_group import GroupConsumer
from streams.adapters.kafka_pointers import KafkaPointers
from streams.adapters.kafka_producers import connected
from streams.domain.errors import Unavailable
from streams.domain.records import Record
from streams.domain.topics import Lane, Topics

pytestmark = pytest.mark.servers

TASKS = ["_fetcher._fetch_task", "_coordinator._coordination_task"]


async def end(consumer: Any, path: str) -> None:
    """As an error that its own code did not foresee."""
    part, name = path.split(".")
    owner = getattr(consumer, part)
    getattr(owner, name).cancel()

    async def failing() -> None:
        raise ZeroDivisionError

    with suppress(asyncio.CancelledError):
        await getattr(owner, name)
    setattr(owner, name, asyncio.create_task(failing()))
    await asyncio.wait([getattr(owner, name)])


async def put(servers: devservers.Servers, topic: str, value: bytes) -> None:
    producer = await connected(servers.kafka.bootstrap_servers)
    await producer.send_and_wait(topic, value, key=b"k")
    await producer.stop()


@pytest.mark.parametrize("task", TASKS)
async def test_a_group_member_that_has_ended_is_made_anew(
    servers: devservers.Servers, topics: Topics, task: str
) -> None:
    consumer = GroupConsumer(
        servers.kafka.bootstrap_servers,
        topic=topics.delivery_events,
        group=f"{topics.prefix}g",
        stage="recipients",
    )

    async def read() -> bytes | None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            with suppress(Unavailable):
                for record in await consumer.poll():
                    await consumer.commit([record])
                    return record.value
        return None

    await consumer.start()
    try:
        await put(servers, topics.delivery_events, b"one")
        assert await read() == b"one"
        await end(consumer._consumer, task)
        await put(servers, topics.delivery_events, b"two")
        assert await read() == b"two"
    finally:
        await consumer.stop()


@pytest.mark.parametrize("task", TASKS)
async def test_what_an_ended_member_has_not_committed_is_read_again(
    servers: devservers.Servers, topics: Topics, task: str
) -> None:
    topic, group = topics.delivery_events, f"{topics.prefix}g"
    consumer = GroupConsumer(
        servers.kafka.bootstrap_servers, topic=topic, group=group, stage="recipients"
    )

    async def read() -> Sequence[Record]:
        deadline = time.monotonic() + 90
        while not (found := await consumer.poll()):
            assert time.monotonic() < deadline
        return found

    await consumer.start()
    try:
        await put(servers, topic, b"one")
        first = await read()
        await end(consumer._consumer, task)
        with pytest.raises(Unavailable, match="made anew"):
            await consumer.commit(first)
        await consumer.commit(first)  # by whoever owns the partition now
        assert [record.value for record in await read()] == [b"one"]
    finally:
        await consumer.stop()


async def test_a_member_that_fails_as_nobody_foresaw_is_made_anew(
    servers: devservers.Servers, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = GroupConsumer(
        servers.kafka.bootstrap_servers,
        topic=topics.delivery_events,
        group=f"{topics.prefix}g",
        stage="recipients",
    )
    await consumer.start()
    try:
        before = consumer._consumer
        monkeypatch.setattr(before, "getmany", AsyncMock(side_effect=RuntimeError("closed")))
        with pytest.raises(Unavailable, match="made anew"):
            await consumer.poll()
        await consumer.poll()
        assert consumer._consumer is not before
    finally:
        await consumer.stop()


@pytest.mark.parametrize("task", TASKS)
async def test_a_reader_of_pointers_that_has_ended_says_so(
    servers: devservers.Servers, topics: Topics, task: str
) -> None:
    pointers = KafkaPointers(servers.kafka.bootstrap_servers, topics, client_id="test")

    async def changed(_: frozenset[int]) -> None:
        pass

    async def read() -> bytes | None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for record in await pointers.fetch([Lane.BULK], most=1, timeout_s=0.5):
                return record.value
        return None

    topic = topics.outbox(Lane.BULK)
    await pointers.start(on_revoked=changed, on_assigned=changed)
    try:
        await put(servers, topic, b"one")
        assert await read() == b"one"
        await end(pointers._consumer, task)
        with pytest.raises(Unavailable, match="made anew"):
            await pointers.fetch([Lane.BULK], most=1, timeout_s=0.5)
        await pointers.stop()
        await pointers.start(on_revoked=changed, on_assigned=changed)
        assert await read() == b"one"  # it was not committed
    finally:
        await pointers.stop()
