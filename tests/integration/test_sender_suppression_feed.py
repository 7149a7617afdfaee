"""The suppression table on a real topic: transactions, positions, partitions that change hands."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, PolicyViolationError

import devservers
from streams.adapters.kafka import create_topics
from streams.adapters.kafka_suppressions import KafkaSuppressions
from streams.domain.addresses import RecipientKey
from streams.domain.errors import Unavailable
from streams.domain.topics import Lane, Topics
from streams.suppression_table import SuppressionTable

pytestmark = pytest.mark.servers

ANN = RecipientKey("0123456789abcdef0123456789abcdef")
SUPPRESSED = json.dumps(
    {"suppressions": [{"tenant": "*", "lane": "*", "reason": "complaint"}]}
).encode()


@pytest.fixture
async def table(servers: devservers.Servers, topics: Topics) -> AsyncIterator[SuppressionTable]:
    made = SuppressionTable(
        KafkaSuppressions(servers.kafka.bootstrap_servers, topics.suppressions, client_id="test"),
        staleness_s=60.0,
    )
    yield made
    await made.stop()


@asynccontextmanager
async def producing(
    servers: devservers.Servers, transactional_id: str | None = None
) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers.kafka.bootstrap_servers, transactional_id=transactional_id
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def put(
    producer: AIOKafkaProducer,
    topics: Topics,
    key: str,
    value: bytes | None,
    *,
    sequence: int = 1,
    partition: int = 0,
) -> None:
    await producer.send_and_wait(
        topics.suppressions,
        value,
        key=key.encode(),
        partition=partition,
        headers=[("seq", str(sequence).encode())],
    )


async def beat(
    producer: AIOKafkaProducer, topics: Topics, partition: int = 0, **more: bool
) -> None:
    value = json.dumps({"heartbeat": datetime.now(UTC).isoformat(), **more}).encode()
    await put(producer, topics, f"heartbeat-{partition}", value, partition=partition)


async def follow_until(table: SuppressionTable, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, table.missing()
        await table.follow()


async def test_partition_that_ends_in_a_transaction_marker_is_caught_up(
    servers: devservers.Servers, topics: Topics, table: SuppressionTable
) -> None:
    async with producing(servers, transactional_id=uuid4().hex) as producer:
        async with producer.transaction():
            await beat(producer, topics)
            await put(producer, topics, ANN, SUPPRESSED)
        await producer.begin_transaction()
        await put(producer, topics, ANN, None, sequence=2)
        await producer.abort_transaction()
    table.own(frozenset({0}))
    await follow_until(table, lambda: table.usable(0, Lane.BULK))
    assert table.hit(0, ANN, "shop", Lane.BULK) == 1


async def test_empty_partition_is_caught_up_and_waits_for_its_heartbeat(
    servers: devservers.Servers, topics: Topics, table: SuppressionTable
) -> None:
    table.own(frozenset({2}))
    await follow_until(table, lambda: "no heartbeat" in (table.missing() or ""))
    async with producing(servers) as producer:
        await beat(producer, topics, 2)
    await follow_until(table, lambda: table.usable(2, Lane.BULK))


async def test_changes_come_in_while_partitions_change_hands(
    servers: devservers.Servers, topics: Topics, table: SuppressionTable
) -> None:
    bob = RecipientKey("f" * 32)
    async with producing(servers) as producer:
        for partition in range(3):
            await beat(producer, topics, partition)
        await put(producer, topics, ANN, SUPPRESSED, sequence=1)
        table.own(frozenset({0}))
        await follow_until(table, lambda: table.usable(0, Lane.BULK))
        table.own(frozenset({0, 1}))
        assert table.usable(0, Lane.BULK)
        await put(producer, topics, ANN, None, sequence=2)
        await put(producer, topics, bob, SUPPRESSED, sequence=3, partition=1)
        await follow_until(table, lambda: table.usable(1, Lane.BULK))
        await follow_until(table, lambda: table.hit(0, ANN, "shop", Lane.BULK) is None)
        await follow_until(table, lambda: table.hit(1, bob, "shop", Lane.BULK) == 3)
        table.own(frozenset({1, 2}))
        await follow_until(table, lambda: table.usable(2, Lane.BULK))
    assert not table.usable(0, Lane.BULK)
    assert table.hit(1, bob, "shop", Lane.BULK) == 3


async def test_topic_that_is_made_anew_is_followed_again_and_usable_once_it_is_filled(
    servers: devservers.Servers, topics: Topics, table: SuppressionTable
) -> None:
    async with producing(servers) as producer:
        await put(producer, topics, ANN, SUPPRESSED)
        for _ in range(5):
            await beat(producer, topics)
        table.own(frozenset({0}))
        await follow_until(table, lambda: table.usable(0, Lane.BULK))
    assert table.hit(0, ANN, "shop", Lane.BULK) == 1
    admin = AIOKafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics([topics.suppressions])
        deadline = time.monotonic() + 20
        while topics.suppressions in await admin.list_topics():
            assert time.monotonic() < deadline
    finally:
        await admin.close()
    while True:  # the name is free again only after a moment
        try:
            await create_topics(
                servers.kafka.bootstrap_servers, topics, partitions=3, replication_factor=1
            )
            async with producing(servers) as producer:
                await beat(producer, topics)
            break
        except (KafkaError, Unavailable):
            assert time.monotonic() < deadline
    await follow_patiently(table, lambda: "suppressions republish" in (table.missing() or ""))
    assert not table.usable(0, Lane.TRANSACTIONAL)
    async with producing(servers) as producer:
        await put(producer, topics, ANN, SUPPRESSED, sequence=2)
        await beat(producer, topics, republished=True)
        await follow_patiently(table, lambda: table.usable(0, Lane.BULK))
    assert table.hit(0, ANN, "shop", Lane.BULK) == 2


async def follow_patiently(table: SuppressionTable, condition: Callable[[], bool]) -> None:
    """While Kafka is away too."""
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, table.missing()
        with suppress(Unavailable):
            await table.follow()


async def delete_patiently(
    admin: AIOKafkaAdminClient, partition: TopicPartition, *, before: int
) -> None:
    """The broker learns a moment after the controller that the topic's policy allows it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            await admin.delete_records({partition: RecordsToDelete(before_offset=before)})
        except PolicyViolationError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        else:
            return


async def test_topic_whose_records_are_deleted_is_noticed(
    servers: devservers.Servers, topics: Topics, table: SuppressionTable
) -> None:
    async with producing(servers) as producer:
        await beat(producer, topics)
        await put(producer, topics, ANN, SUPPRESSED)
        table.own(frozenset({0}))
        await follow_until(table, lambda: table.usable(0, Lane.BULK))
        admin = AIOKafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap_servers)
        await admin.start()
        policy = {"cleanup.policy": "compact,delete"}
        try:
            await admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topics.suppressions, policy)]
            )
            await delete_patiently(admin, TopicPartition(topics.suppressions, 0), before=2)
        finally:
            await admin.close()
        await follow_patiently(table, lambda: "were deleted" in (table.missing() or ""))
        await put(producer, topics, ANN, SUPPRESSED, sequence=2)
        await beat(producer, topics, republished=True)
        await follow_patiently(table, lambda: table.usable(0, Lane.BULK))
    assert table.hit(0, ANN, "shop", Lane.BULK) == 2


async def test_thousands_of_records_are_loaded_before_anything_is_decided(
    servers: devservers.Servers, topics: Topics, table: SuppressionTable
) -> None:
    """The recipient that is asked for is the very last record."""
    async with producing(servers) as producer:
        await beat(producer, topics)
        for n in range(20_000):
            await producer.send(
                topics.suppressions,
                SUPPRESSED,
                key=f"{n:032x}".encode(),
                partition=0,
                headers=[("seq", b"%d" % (n + 1))],
            )
        await producer.flush()
        await put(producer, topics, ANN, SUPPRESSED, sequence=99_999)
    table.own(frozenset({0}))
    decided: list[int | None] = []

    def is_decided() -> bool:
        """At the first moment when mail may be decided, what is said of Ann."""
        if table.usable(0, Lane.BULK):
            decided.append(table.hit(0, ANN, "shop", Lane.BULK))
        return bool(decided)

    await follow_until(table, is_decided)
    assert decided == [99_999]
