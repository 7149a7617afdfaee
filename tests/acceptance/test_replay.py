"""Replaying the outbox topic from offset 0 sends nothing and takes no permit."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

import devservers
from demo.system import System
from streams.adapters.kafka_positions import committed_positions
from streams.domain.topics import Lane, Topics
from tests.acceptance.conftest import Connection, enqueue, until_state

pytestmark = pytest.mark.servers


PARTITIONS = 12


def partitions(topics: Topics) -> list[TopicPartition]:
    return [TopicPartition(topics.outbox(lane), n) for lane in Lane for n in range(PARTITIONS)]


async def rewind(bootstrap_servers: str, group: str, topics: Topics) -> int:
    """Sets the group's position to 0 everywhere; how many records there are to read again."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign(partitions(topics))
        ends = await consumer.end_offsets(partitions(topics))
        await consumer.commit({p: OffsetAndMetadata(0, "") for p in ends})
        return sum(ends.values())
    finally:
        await consumer.stop()


async def until_read_again(bootstrap_servers: str, group: str, topics: Topics) -> None:
    """Until the group's committed positions are the ends again."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await consumer.start()
    await admin.start()
    try:
        async with asyncio.timeout(60):
            while True:
                ends = await consumer.end_offsets(partitions(topics))
                done = await committed_positions(admin, group)
                if all(done.get(p) == end for p, end in ends.items() if end):
                    return
                await asyncio.sleep(0.1)
    finally:
        await admin.close()
        await consumer.stop()


def permits_and_calls(system: System, application: Connection) -> tuple[int, int]:
    row = application.execute("SELECT sum(granted)::bigint FROM send_rate").fetchone()
    assert row is not None
    return int(str(row[0])), len(system.ledger())


def test_a_replay_sends_nothing_and_takes_no_permit(
    system: System, application: Connection, topics_of: Topics, servers: devservers.Servers
) -> None:
    ids = [
        enqueue(application, f"user{n}@example.com", lane=lane) for n in range(50) for lane in Lane
    ]
    for outbox_id in ids:
        until_state(system, application, outbox_id, "submitted")
    bootstrap_servers, group = servers.kafka.bootstrap_servers, system.sender_group
    system.stop("sender")
    before = permits_and_calls(system, application)
    assert asyncio.run(rewind(bootstrap_servers, group, topics_of)) >= 100
    system.start("sender")
    system.wait_ready("sender")
    asyncio.run(until_read_again(bootstrap_servers, group, topics_of))
    assert permits_and_calls(system, application) == before
    until_state(system, application, enqueue(application, "next@example.com"), "submitted")
