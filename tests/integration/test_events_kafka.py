"""The endpoint on a real Kafka: an event is in its partition before SNS is answered, and an outage is 503."""

import asyncio
import io
import itertools
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from cryptography.fernet import Fernet

import devservers
from devservers.kafka import LocalKafka
from streams.adapters.kafka import create_topics
from streams.adapters.kafka_publisher import KafkaPublisher, UnreadableTopic
from streams.domain.addresses import recipient_key
from streams.domain.delivery_events import decode
from streams.domain.errors import Unavailable
from streams.domain.partitioner import partition_of
from streams.domain.topics import Topics, unreadable
from streams.events import Events, EventsSettings
from streams.intake import Intake, IntakeSettings
from tests.events_rig import Certificates, Confirmer
from tests.sns_signing import (
    SALT,
    TOPIC,
    certificate,
    delivery,
    notification,
    ses_event,
    signed,
    timestamp,
)

pytestmark = pytest.mark.servers
PARTITIONS = 3
KEY = Fernet.generate_key()
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """A Kafka of this module alone, since it is frozen and killed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS", raising=False)
        with devservers.running(devservers.ServerSettings(postgres=False)) as servers:
            assert isinstance(servers.kafka, LocalKafka)
            yield servers.kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A running endpoint and what it writes to."""

    stage: Events
    http: aiohttp.ClientSession
    topics: Topics
    bootstrap_servers: str

    async def post(self, message: str | dict[str, Any]) -> tuple[int, str]:
        body = signed(notification(message, Timestamp=timestamp(datetime.now(UTC))))
        async with self.http.post(
            f"http://{self.stage.address}/sns", data=io.BytesIO(body)
        ) as answer:
            return answer.status, (await answer.text()).strip()

    async def records(self, topic: str, partitions: int) -> list[Any]:
        """Everything in the topic now."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(wanted)
            found: list[Any] = []
            for partition, end in (await consumer.end_offsets(wanted)).items():
                while await consumer.position(partition) < end:
                    found += (await consumer.getmany(partition, timeout_ms=200)).get(partition, [])
            return found
        finally:
            await consumer.stop()


async def made(bootstrap_servers: str, topics: Topics) -> None:
    """Makes the topics; a broker that was frozen takes a while to find its controller again."""
    async with asyncio.timeout(60):
        while True:
            try:
                await create_topics(
                    bootstrap_servers, topics, partitions=PARTITIONS, replication_factor=1
                )
            except Unavailable:
                await asyncio.sleep(0.1)
            else:
                return


@asynccontextmanager
async def scene(kafka: LocalKafka) -> AsyncIterator[Scene]:
    topics = Topics(prefix=f"events{os.getpid()}-{next(_numbers)}.")
    servers = kafka.bootstrap_servers
    await made(servers, topics)
    publisher = KafkaPublisher(servers, client_id="events", timeout_s=2.0)
    certificates = Certificates(pem=certificate(now=datetime.now(UTC)))
    settings = IntakeSettings(
        topics=frozenset((TOPIC,)),
        signature_versions=frozenset(("1",)),
        max_age=None,
        salt=SALT,
        events_topic=topics.delivery_events,
    )
    aside = UnreadableTopic(publisher, key=KEY, stage="events")
    intake = Intake(settings, publisher, aside, certificates, Confirmer())
    stage = Events(EventsSettings(), intake, publisher, certificates)
    await stage.start()
    running = asyncio.create_task(stage.run())
    async with aiohttp.ClientSession() as http:
        try:
            yield Scene(stage=stage, http=http, topics=topics, bootstrap_servers=servers)
        finally:
            await stage.stop()
            await running


def about(address: str) -> dict[str, Any]:
    return ses_event("Delivery", delivery(recipients=[address]), destination=[address])


async def test_an_answered_event_is_in_the_partition_of_its_key(kafka: LocalKafka) -> None:
    addresses = [f"user{n}@example.com" for n in range(20)]
    async with scene(kafka) as it:
        answers = await asyncio.gather(*(it.post(about(address)) for address in addresses))
        assert set(answers) == {(200, "accepted")}
        records = await it.records(it.topics.delivery_events, PARTITIONS)
    keys = {recipient_key(address, SALT) for address in addresses}
    assert {decode(r.value).recipient_key for r in records} == keys
    for record in records:
        assert record.key == decode(record.value).recipient_key.encode()
        assert record.partition == partition_of(record.key, PARTITIONS)


async def test_what_cannot_be_read_is_kept_encrypted(kafka: LocalKafka) -> None:
    async with scene(kafka) as it:
        assert await it.post("user1@example.com has bounced") == (200, "unreadable")
        (record,) = await it.records(unreadable(it.topics.delivery_events), 1)
    assert b"user1" not in record.value
    assert b"user1@example.com has bounced" in Fernet(KEY).decrypt(record.value)
    assert dict(record.headers)["stage"] == b"events"
    assert dict(record.headers)["offset"] == b"-1"


async def test_the_largest_message_that_sns_can_carry_is_kept_too(kafka: LocalKafka) -> None:
    async with scene(kafka) as it:
        message = "\x01" * (256 * 1024)
        assert await it.post(message) == (200, "unreadable")
        (record,) = await it.records(unreadable(it.topics.delivery_events), 1)
    assert len(Fernet(KEY).decrypt(record.value)) > 6 * len(message)


@pytest.mark.parametrize("outage", ["frozen", "killed"])
async def test_an_outage_is_503_and_the_repetition_is_the_same_event(
    kafka: LocalKafka, outage: str
) -> None:
    async with scene(kafka) as it:
        assert await it.post(about("user1@example.com")) == (200, "accepted")
        await asyncio.to_thread(kafka.pause if outage == "frozen" else kafka.kill)
        try:
            started = time.monotonic()
            status, reason = await it.post(about("user2@example.com"))
            assert time.monotonic() - started < 15
            assert (status, reason) in ((503, "publish-failed"), (503, "overloaded"))
            assert it.stage.health.missing()
        finally:
            await asyncio.to_thread(kafka.cont if outage == "frozen" else kafka.start)
        await repeat_until_accepted(it, about("user2@example.com"))
        records = await it.records(it.topics.delivery_events, PARTITIONS)
    events = {decode(r.value).id: decode(r.value) for r in records}
    assert sorted(e.recipient_key for e in events.values()) == sorted(
        recipient_key(f"user{n}@example.com", SALT) for n in (1, 2)
    )


async def repeat_until_accepted(it: Scene, message: dict[str, Any]) -> None:
    async with asyncio.timeout(60):
        while (answer := await it.post(message)) != (200, "accepted"):
            assert answer[0] == 503
