"""What is in topics, and what tests put there."""

import itertools
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streams.adapters.kafka import record_of
from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import DeliveryEvent, EventId, EventType, encode
from streams.domain.records import Record

SUPPRESSED: Final = json.dumps(
    {"suppressions": [{"tenant": "*", "lane": "*", "reason": "complaint"}]}
).encode()


@asynccontextmanager
async def admin_of(bootstrap_servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def partitions_of(bootstrap_servers: str, topic: str) -> list[TopicPartition]:
    async with admin_of(bootstrap_servers) as admin:
        [described] = await admin.describe_topics([topic])
    return [TopicPartition(topic, p["partition"]) for p in described["partitions"]]


async def ends_of(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The end offset of each partition."""
    partitions = await partitions_of(bootstrap_servers, topic)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    await consumer.start()
    try:
        return {tp.partition: end for tp, end in (await consumer.end_offsets(partitions)).items()}
    finally:
        await consumer.stop()


async def records_of(
    bootstrap_servers: str,
    partitions: Sequence[TopicPartition],
    *,
    isolation: str = "read_committed",
) -> list[Record]:
    """All records up to the end of this moment, in order within each partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, enable_auto_commit=False, isolation_level=isolation
    )
    await consumer.start()
    try:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        records: list[Record] = []
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                records += [record_of(r) for r in batch]
        return records
    finally:
        await consumer.stop()


async def newest_records(
    bootstrap_servers: str, topic: str, numbers: Sequence[int], *, key: bytes, back: int = 500
) -> list[Record]:
    """Those with this key among the last of these partitions."""
    partitions = [TopicPartition(topic, number) for number in numbers]
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for tp, end in ends.items():
            consumer.seek(tp, max(0, end - back))
        records: list[Record] = []
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                records += [record_of(r) for r in batch if r.key == key]
        return records
    finally:
        await consumer.stop()


async def write_suppressions(
    bootstrap_servers: str, topic: str, count: int, partitions: int
) -> None:
    """So many suppressions of keys that nobody has, a share in each partition, in whole batches."""
    sequences = itertools.count(1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
        for number in range(partitions):
            left = count // partitions + (number < count % partitions)
            while left:
                batch = producer.create_batch()
                while left and batch.append(
                    timestamp=None,
                    key=secrets.token_hex(16).encode(),
                    value=SUPPRESSED,
                    headers=[("seq", b"%d" % next(sequences))],
                ):
                    left -= 1
                await (await producer.send_batch(batch, topic, partition=number))


async def publish(bootstrap_servers: str, topic: str, values: Sequence[bytes | None]) -> None:
    """Into partition 0, in this order."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
        for value in values:
            await producer.send(topic, value, key=b"k", partition=0)
        await producer.flush()


async def configure(
    bootstrap_servers: str, kind: ConfigResourceType, name: str, values: dict[str, str]
) -> None:
    async with admin_of(bootstrap_servers) as admin:
        await admin.alter_configs([ConfigResource(kind, name, configs=values)])


def facts(count: int, name: str) -> list[bytes]:
    """So many facts about somebody else's mail."""
    return [
        encode(
            DeliveryEvent(
                id=EventId(f"{name}-{n}"),
                type=EventType.DELIVERED,
                time=datetime(2026, 1, 15, tzinfo=UTC),
                recipient_key=RecipientKey(f"{n:032x}"),
            )
        )
        for n in range(count)
    ]
