"""Cases D05, D06, D07 and D11: what is in the topics, and what the stages make of it."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

import devservers
from streams.adapters.kafka import create_topics
from streams.adapters.kafka_publisher import KafkaPublisher
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.feed_rows import Refusal, refusal
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.partitioner import partition_of, positive_hashes
from streams.domain.records import NewRecord
from tests.integration.relay_setup import eventually
from tests.scenarios.scene import REPOSITORY, Scene, scene_on
from tests.scenarios.topics import (
    SUPPRESSED,
    admin_of,
    configure,
    ends_of,
    facts,
    publish,
    records_of,
)

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

RECIPIENTS: Final = "recipients"


def folded(scene: Scene) -> int:
    return int(scene.value("SELECT count(*) FROM email_event"))


def alerts_on(metric: str) -> list[str]:
    rules = yaml.safe_load((REPOSITORY / "ops/prometheus/alerts.yml").read_text(encoding="utf-8"))
    return [
        rule["alert"]
        for group in rules["groups"]
        for rule in group["rules"]
        if re.search(rf"\b{metric}\b", rule["expr"])
    ]


def run_until(scene: Scene, condition: Callable[[], bool], what: str) -> None:
    """Runs the recipients stage until the condition holds; the stage is still the same process then."""
    scene.run(RECIPIENTS)
    scene.wait_for(condition, what, alive=RECIPIENTS, timeout_s=90)


def test_d05_what_retention_took_is_counted_and_the_rest_is_folded(
    servers: devservers.Servers, tmp_path: Path
) -> None:
    with scene_on(servers, tmp_path, partitions=1, simulator=False) as scene:
        topic = scene.topics.delivery_events
        run_until(scene, lambda: bool(scene.said(RECIPIENTS, "consumer.assigned")), "an assignment")
        scene.stop(RECIPIENTS)
        asyncio.run(publish(scene.kafka, topic, facts(100, "first")))
        asyncio.run(delete_below(scene.kafka, topic, 90))
        run_until(scene, lambda: folded(scene) == 10, "the ten that are left")
        assert scene.metric(RECIPIENTS, GAP, stage=RECIPIENTS) == 90
        assert scene.metric(RECIPIENTS, RESETS, stage=RECIPIENTS) == 0
        assert alerts_on(GAP)
        scene.wait_for(lambda: committed(scene) == 100, "the position to be committed")
        scene.stop(RECIPIENTS)

        asyncio.run(make_anew(scene))
        asyncio.run(publish(scene.kafka, topic, facts(10, "second")))
        asyncio.run(commit_at(scene, 100))
        run_until(scene, lambda: folded(scene) == 20, "the ten of the new topic")
        assert scene.metric(RECIPIENTS, RESETS, stage=RECIPIENTS) == 1
        assert alerts_on(RESETS)
        scene.wait_for(lambda: committed(scene) == 10, "the position to be committed")
        scene.kill(RECIPIENTS)


GAP: Final = "mailstreams_consumer_gap_records_total"
RESETS: Final = "mailstreams_consumer_position_resets_total"


async def delete_below(bootstrap_servers: str, topic: str, offset: int, partition: int = 0) -> None:
    async with admin_of(bootstrap_servers) as admin:
        where = {TopicPartition(topic, partition): RecordsToDelete(before_offset=offset)}
        await admin.delete_records(where)


def group_of(scene: Scene) -> str:
    return f"{scene.topic_prefix}recipients"


def committed(scene: Scene) -> int | None:
    async def ask() -> int | None:
        async with admin_of(scene.kafka) as admin:
            partition = TopicPartition(scene.topics.delivery_events, 0)
            found = await admin.list_consumer_group_offsets(group_of(scene), partitions=[partition])
            at: int = found[partition].offset
            return at

    try:
        return asyncio.run(ask())
    except KafkaError:
        return None


async def commit_at(scene: Scene, offset: int) -> None:
    """What the group would have committed if the broker kept positions of deleted topics."""
    partition = TopicPartition(scene.topics.delivery_events, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=scene.kafka, group_id=group_of(scene), enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.commit({partition: OffsetAndMetadata(offset, "")})
    finally:
        await consumer.stop()


async def make_anew(scene: Scene) -> None:
    """Deletes the event topic, waits until it is gone, and makes it again."""
    topic = scene.topics.delivery_events
    async with admin_of(scene.kafka) as admin, asyncio.timeout(90):
        await admin.delete_topics([topic])

        async def gone() -> bool:
            return topic not in await admin.list_topics()

        await eventually(gone, within_s=90)
        while True:
            try:
                await create_topics(scene.kafka, scene.topics, partitions=1, replication_factor=-1)
                return
            except Unavailable:  # its name is free only a moment later
                await asyncio.sleep(0.1)


def test_d06_a_tombstone_and_a_new_value_in_one_fetch_leave_the_new_value(
    servers: devservers.Servers, tmp_path: Path
) -> None:
    one, two, three = (f"key-{n}@example.com" for n in (1, 2, 3))
    foo, bar, baz = "manual", "complaint", "hard-bounce"
    with scene_on(servers, tmp_path, partitions=1) as scene:
        scene.run("around", "relay", "scheduler")
        scene.wait_ready("around", 120)
        for address, reason in ((one, foo), (two, bar), (two, None), (two, baz)):
            change_suppression(scene, address, reason)
        keys = {scene.key(address).encode(): address for address in (one, two, three)}
        told: list[tuple[str, bool]] = []

        def written() -> bool:
            partition = [TopicPartition(scene.topics.suppressions, 0)]
            records = asyncio.run(records_of(scene.kafka, partition))
            told[:] = [(keys[r.key], r.value is None) for r in records if r.key in keys]
            return len(told) == 4

        scene.wait_for(written, "four records in the suppression topic")
        assert told == [(one, False), (two, False), (two, True), (two, False)]
        ids = scene.commit([one, two, three])
        with scene.senders("sender-1"):
            scene.wait_for(lambda: scene.states(ids).keys() <= {"suppressed", "submitted"}, "")
            assert scene.metric("sender-1", "mailstreams_sender_suppression_entries") == 2
        found = scene.rows(
            "SELECT state, reason FROM email_outbox WHERE id = ANY (%s::uuid[]) ORDER BY recipient",
            ids,
        )
        assert [state for state, _ in found] == ["suppressed", "suppressed", "submitted"]
        assert foo in found[0][1]
        assert baz in found[1][1]
        assert bar not in found[1][1]
        assert scene.accepted().keys() == {ids[2]}


def change_suppression(scene: Scene, address: str, reason: str | None) -> None:
    """In a transaction of its own, so that it becomes a record of its own."""
    statement = (
        "DELETE FROM suppression WHERE recipient_key = recipient_key(%s) RETURNING 1"
        if reason is None
        else f"INSERT INTO suppression (recipient_key, reason) VALUES (recipient_key(%s), '{reason}') RETURNING 1"
    )
    assert scene.rows(statement, address)


def test_d07_a_sender_is_ready_although_no_record_has_the_last_offset(
    servers: devservers.Servers, tmp_path: Path
) -> None:
    with scene_on(servers, tmp_path, partitions=3) as scene:
        asyncio.run(prepare_ends(scene))
        scene.run("sender-1")
        reading = "are being read"
        scene.wait_for(
            lambda: (
                scene.owned("sender-1") == {0, 1, 2}
                and reading
                not in scene.missing("sender-1").get("sender.suppression_table", reading)
            ),
            "the table to be caught up",
            alive="sender-1",
            timeout_s=30,
        )
        # What is left to be wanted are a heartbeat and the rate, which the scheduler gives.
        scene.run("around", "relay", "scheduler")
        scene.wait_ready("around", 120)
        scene.wait_ready("sender-1", 30)
        ids = scene.commit([scene.addresses(n, 1, f"to-{n}")[0] for n in range(3)])
        scene.wait_submitted(ids, 60)
        scene.kill("sender-1")


async def prepare_ends(scene: Scene) -> None:
    """0: the last record was compacted away. 1: ends in a transaction marker. 2: empty, start = end = 17."""
    topic, kafka = scene.topics.suppressions, scene.kafka
    await configure_topic(scene, "compact,delete")  # the broker deletes records of no other
    async with AIOKafkaProducer(bootstrap_servers=kafka, acks="all") as producer:
        for n in range(17):
            await producer.send_and_wait(topic, SUPPRESSED, key=b"%032x" % n, partition=2)
            await producer.send_and_wait(topic, SUPPRESSED, key=b"%032x" % 1, partition=0)
        await producer.send_and_wait(topic, None, key=b"%032x" % 1, partition=0)
    await delete_below(kafka, topic, 17, partition=2)
    await configure_topic(scene, "compact")
    async with AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, SUPPRESSED, key=b"%032x" % 2, partition=1)

        async def compacted() -> bool:
            """The cleaner looks again where something came after; what comes is never to be seen."""
            await producer.begin_transaction()
            await producer.send_and_wait(topic, SUPPRESSED, key=b"%032x" % 3, partition=0)
            await producer.abort_transaction()
            return await readable(scene, 0) == []

        await eventually(compacted, within_s=120, every_s=0.5)
    assert await readable(scene, 1) == [0]
    assert await readable(scene, 2) == []
    ends = await ends_of(kafka, topic)
    assert (ends[1], ends[2]) == (2, 17)
    assert ends[0] > 18


async def readable(scene: Scene, partition: int) -> list[int]:
    found = await records_of(scene.kafka, [TopicPartition(scene.topics.suppressions, partition)])
    return [record.offset for record in found]


async def configure_topic(scene: Scene, policy: str) -> None:
    soon = {
        "cleanup.policy": policy,
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "0",
    }
    await configure(scene.kafka, ConfigResourceType.TOPIC, scene.topics.suppressions, soon)


# The case's own keys: with the sign bit left in, the last would be in partition 3.
PLACES: Final = ((b"100:48069", 12, 9), (b"TT0124", 15, 10), (b"user1@example.com", 12, 7))


async def test_d11_every_partitioner_of_ours_agrees_with_java_and_an_empty_key_is_refused(
    servers: devservers.Servers,
) -> None:
    kafka = servers.kafka.bootstrap_servers
    publisher = KafkaPublisher(kafka, client_id="test")
    try:
        for number, (key, partitions, partition) in enumerate(PLACES):
            # The relay's, for few and for many keys; what the scheduler, the rebuild and the heartbeats use; aiokafka's own.
            assert positive_hashes([key])[0] % partitions == partition
            assert {h % partitions for h in positive_hashes([key] * 50)} == {partition}
            assert partition_of(key, partitions) == partition
            topic = f"d11-{number}-{id(publisher)}"
            await make_topic(kafka, topic, partitions)
            await publisher.publish([NewRecord(topic=topic, key=key, value=b"x")])
            async with AIOKafkaProducer(bootstrap_servers=kafka) as tool:
                await tool.send_and_wait(topic, b"x", key=key)
            ends = await ends_of(kafka, topic)
            assert {n for n, end in ends.items() if end} == {partition}
            with pytest.raises(BadMessage, match="empty key"):
                await publisher.publish([NewRecord(topic=topic, key=b"", value=b"x")])
            assert await ends_of(kafka, topic) == ends
            async with admin_of(kafka) as admin:
                await admin.delete_topics([topic])
    finally:
        await publisher.stop()
    for partitions in (1, 3, 12):
        keys = heartbeat_keys(partitions)
        assert [partition_of(k.encode(), partitions) for k in keys] == list(range(partitions))
    row: Any = (None, b"id", b"suppressions", b"", b"type", b"{}", None, b"1")
    assert refusal(row, largest=1000, refused_ids=()) is Refusal.NO_KEY


async def make_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    async with admin_of(bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
