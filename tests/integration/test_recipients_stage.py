"""The recipients stage between a real Kafka and a real PostgreSQL."""

import asyncio
import random
import string
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from cryptography.fernet import Fernet

import devservers
from streams.adapters.facts_store import FactsStore
from streams.adapters.kafka import create_topics
from streams.adapters.kafka_group import GroupConsumer
from streams.adapters.kafka_positions import committed_positions
from streams.adapters.kafka_publisher import KafkaPublisher, UnreadableTopic
from streams.adapters.postgres import Database
from streams.domain.delivery_events import DeliveryEvent, EventType, encode
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.records import NewRecord
from streams.domain.topics import Topics, unreadable
from streams.domain.unreadable_limit import UnreadableLimit
from streams.recipients import Recipients
from streams.runtime import metrics
from tests.conftest import PARTITIONS
from tests.integration.outbox_rows import Row, event, execute, fetch, make_row

pytestmark = pytest.mark.servers

KEY = Fernet.generate_key()
GROUP = "recipients"
T = TypeVar("T")


async def eventually(condition: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


class Setup:
    """Servers, topics and a database of one test."""

    def __init__(self, servers: devservers.Servers, topics: Topics, dsn: str) -> None:
        self.bootstrap_servers = servers.kafka.bootstrap_servers
        self.topics = topics
        self.topic = topics.delivery_events
        self.dsn = dsn
        self.publisher = KafkaPublisher(self.bootstrap_servers, client_id="test")

    def stage(
        self, *, most: int = 100, facts: FactsStore | None = None, max_records: int = 500
    ) -> Recipients:
        own = Database(self.dsn, pool_size=4, timeout_s=20, name="recipients")
        return Recipients(
            consumer=GroupConsumer(
                self.bootstrap_servers,
                topic=self.topic,
                group=self.topics.prefix + GROUP,
                stage="recipients",
                max_records=max_records,
            ),
            facts=facts or FactsStore(own),
            unreadable=UnreadableTopic(self.publisher, key=KEY, stage="recipients"),
            limit=UnreadableLimit(most=most),
        )

    async def publish(self, *values: bytes, partition: int | None = None) -> None:
        await self.publisher.publish(
            [
                NewRecord(topic=self.topic, key=b"k%d" % n, value=value, partition=partition)
                for n, value in enumerate(values)
            ]
        )

    async def publish_events(
        self, events: Sequence[DeliveryEvent], partition: int | None = None
    ) -> None:
        await self.publish(*(encode(e) for e in events), partition=partition)

    async def committed(self) -> int:
        """Sum of the group's positions."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await admin.start()
        try:
            async with asyncio.timeout(60):
                found = await committed_positions(admin, self.topics.prefix + GROUP)
        finally:
            await admin.close()
        return sum(max(position, 0) for position in found.values())

    async def records_of(self, topic: str, count: int) -> list[Any]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=self.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]
        finally:
            await consumer.stop()


@pytest.fixture
async def setup(
    servers: devservers.Servers, topics: Topics, database_dsn: str
) -> AsyncIterator[Setup]:
    made = Setup(servers, topics, database_dsn)
    yield made
    await made.publisher.stop()


@asynccontextmanager
async def running(stage: Recipients) -> AsyncIterator[Recipients]:
    await stage.start()
    run = asyncio.create_task(stage.run())
    try:
        yield stage
    finally:
        await stage.stop()
        await asyncio.wait_for(run, 20)


def many(row: Row, count: int, kind: EventType = EventType.OPENED) -> list[DeliveryEvent]:
    return [event(kind, row, name=f"{kind} {n}", at_s=n) for n in range(count)]


async def has_events(database: Database, count: int) -> bool:
    return bool(await execute(database, "SELECT count(*) = $1 FROM email_event", count))


async def test_events_are_folded_and_then_committed(setup: Setup, database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    await setup.publish_events([*many(row, 300), event(EventType.DELIVERED, row)])
    async with running(setup.stage()) as stage:
        await eventually(lambda: has_events(database, 301))

        async def all_committed() -> bool:
            return await setup.committed() == 301

        await eventually(all_committed)
        assert stage.health.missing() == {}
    delivered = await execute(database, "SELECT delivered_at IS NOT NULL FROM recipient_outcome")
    assert delivered is True
    before = metrics.RECIPIENTS_EVENTS.labels(type="opened")._value.get()
    async with running(setup.stage()):
        await setup.publish_events([event(EventType.CLICKED, row)])
        await eventually(lambda: has_events(database, 302))
    assert metrics.RECIPIENTS_EVENTS.labels(type="opened")._value.get() == before


async def test_what_the_rows_own_life_tells_is_no_fact(setup: Setup, database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    life = [
        event(kind, row)
        for kind in (EventType.FAILED, EventType.EXPIRED, EventType.SUPPRESSED, EventType.CANCELLED)
    ]
    await setup.publish_events([*life, event(EventType.DELIVERED, row)], partition=0)
    async with running(setup.stage()):
        await eventually(lambda: has_events(database, 1))


async def test_an_unreadable_record_is_set_aside_and_the_others_are_folded(
    setup: Setup, database: Database
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    good = [encode(e) for e in many(row, 20)]
    bad = [b"{", b"\xff\xfe", b"[1]"]
    # A value that only PostgreSQL refuses: too long for an index.
    text = "".join(random.Random(1).choices(string.printable[:94], k=9000))  # noqa: S311 no secret
    bad.append(encode(event(EventType.CLICKED, row, provider_message_id=text)))
    await setup.publish(*good[:10], *bad, *good[10:], partition=1)
    async with running(setup.stage()):
        await eventually(lambda: has_events(database, 20))
        found = await setup.records_of(unreadable(setup.topic), len(bad))
    fernet = Fernet(KEY)
    assert sorted(fernet.decrypt(r.value) for r in found) == sorted(bad)
    for record in found:
        headers = dict(record.headers)
        assert headers["topic"].decode() == setup.topic
        assert (headers["partition"], headers["stage"]) == (b"1", b"recipients")
        assert 10 <= int(headers["offset"]) < 14
        assert headers["reason"]


async def halted(stage: Recipients) -> bool:
    return "records" in stage.health.missing()


async def test_above_its_limit_of_unreadable_records_the_consumer_stops_and_says_why(
    setup: Setup, database: Database
) -> None:
    await setup.publish(*([b"{"] * 30), partition=0)
    async with running(setup.stage(most=20)) as stage:
        await eventually(lambda: halted(stage))
        reason = stage.health.missing()["records"]
        assert "more than 20 unreadable records" in reason
        assert "stopped after partition 0 offset 29" in reason
        assert stage.health.stuck() == {}
        row = await make_row(database, "submitted", provider_message_id="p-1")
        await setup.publish_events(many(row, 3), partition=0)
    assert await setup.committed() == 30
    assert await has_events(database, 0)


async def test_after_a_halt_a_restart_goes_on_behind_what_was_set_aside(
    setup: Setup, database: Database
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    await setup.publish(*([b"{"] * 30), partition=0)
    async with running(setup.stage(most=20)) as stage:
        await eventually(lambda: halted(stage))
    await setup.publish_events(many(row, 3), partition=0)
    await setup.publish(b"[", partition=0)
    async with running(setup.stage(most=20)) as stage:
        await eventually(lambda: has_events(database, 3))
        # Each of the 30 once: the next one is of the second run.
        found = await setup.records_of(unreadable(setup.topic), 31)
        assert not await halted(stage)
    assert sorted(int(dict(r.headers)["offset"]) for r in found) == [*range(30), 33]


async def test_records_that_retention_took_are_counted_and_the_rest_is_folded(
    setup: Setup, database: Database
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    events = many(row, 100)
    await setup.publish_events(events[:1], partition=0)
    async with running(setup.stage()):

        async def one_committed() -> bool:
            return await setup.committed() == 1

        await eventually(one_committed)
    await setup.publish_events(events[1:], partition=0)
    admin = AIOKafkaAdminClient(bootstrap_servers=setup.bootstrap_servers)
    await admin.start()
    await admin.delete_records({TopicPartition(setup.topic, 0): RecordsToDelete(before_offset=90)})
    await admin.close()
    before = metrics.CONSUMER_GAP.labels(stage="recipients")._value.get()
    async with running(setup.stage()):
        await eventually(lambda: has_events(database, 11))
    gap = metrics.CONSUMER_GAP.labels(stage="recipients")._value.get() - before
    assert gap == 89


async def test_a_topic_that_was_made_anew_is_read_from_its_start(
    setup: Setup, database: Database
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    events = many(row, 60)
    await setup.publish_events(events[:50], partition=0)
    async with running(setup.stage()):

        async def committed() -> bool:
            return await setup.committed() == 50

        await eventually(committed)
    admin = AIOKafkaAdminClient(bootstrap_servers=setup.bootstrap_servers)
    await admin.start()
    await admin.delete_topics([setup.topic])

    async def gone() -> bool:
        return setup.topic not in await admin.list_topics()

    await eventually(gone)
    await admin.close()
    await create_topics(
        setup.bootstrap_servers, setup.topics, partitions=PARTITIONS, replication_factor=1
    )
    await setup.publisher.stop()
    await setup.publish_events(events[50:], partition=0)
    async with running(setup.stage()):
        await eventually(lambda: has_events(database, 60))


class FailsAtFirst(FactsStore):
    """PostgreSQL that is away for the first transactions, after having done their work."""

    fails = True

    async def transact(self, work: Callable[[Any], Awaitable[T]]) -> T:
        if self.fails:

            async def undone(transaction: Any) -> T:
                await work(transaction)
                raise Unavailable("PostgreSQL: away")

            return await super().transact(undone)
        return await super().transact(work)


async def test_nothing_is_committed_before_it_is_durable(setup: Setup, database: Database) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    await setup.publish_events(many(row, 40))
    own = Database(setup.dsn, pool_size=4, timeout_s=20, name="recipients")
    counted = metrics.RECIPIENTS_EVENTS.labels(type="opened")
    before = counted._value.get()
    facts = FailsAtFirst(own)
    async with running(setup.stage(facts=facts)) as stage:

        async def fails() -> bool:
            return "fold" in stage.health.missing()

        await eventually(fails)
        assert await setup.committed() == 0
        facts.fails = False
        await eventually(lambda: has_events(database, 40))
    assert counted._value.get() - before == 40
    assert await setup.committed() == 40


async def test_two_members_share_the_work_and_one_takes_over_what_the_other_leaves(
    setup: Setup, database: Database
) -> None:
    row = await make_row(database, "submitted", provider_message_id="p-1")
    events = many(row, 600)
    async with running(setup.stage(max_records=20)):
        async with running(setup.stage(max_records=20)):
            for part in range(0, 300, 50):
                await setup.publish_events(events[part : part + 50])
            await eventually(lambda: has_events(database, 300))
        await setup.publish_events(events[300:])
        await eventually(lambda: has_events(database, 600))


async def test_without_its_topic_the_stage_says_what_to_do(setup: Setup) -> None:
    setup.topic = "t-missing.delivery-events"
    stage = setup.stage()
    with pytest.raises(Misconfigured, match="mailstreams migrate"):
        await stage.start()
    await stage.stop()


async def test_only_the_recipients_of_the_tagged_message_are_believed(
    setup: Setup, database: Database
) -> None:
    row = await make_row(database, "ambiguous")
    await setup.publish_events([event(EventType.DELIVERED, row, recipient="other@example.net")])
    async with running(setup.stage()):
        await eventually(lambda: has_events(database, 1))
    assert await fetch(database, "SELECT state FROM email_outbox") == [{"state": "ambiguous"}]
