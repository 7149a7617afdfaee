"""Queues of the simulated SQS: pull instead of push, and the drain of what the endpoint refused."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from cryptography.fernet import Fernet

import devservers
from streams.adapters.sns import CertificateFetcher, SnsCertificates, SnsConfirmer
from streams.adapters.sqs import SqsQueue
from streams.domain.errors import Unavailable
from streams.domain.sns import Reason
from streams.domain.topics import Topics, unreadable
from streams.events import Events, EventsSettings
from streams.intake import Intake, IntakeSettings
from streams.queue_intake import QueueIntake, QueueKind, Source
from streams.simulator.server import Simulator
from tests.conftest import PARTITIONS
from tests.events_rig import Publisher, Unreadable, eventually
from tests.simulator_rig import TOPIC_ARN, client, quick_settings, simple_mail
from tests.sns_signing import SALT, delivery, notification, ses_event, signed

QUEUE_ARN = "arn:aws:sqs:eu-central-1:111122223333:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A simulator and an intake without an endpoint that anybody calls."""

    url: str
    sns: Any
    sqs: Any
    ses: Any
    publisher: Publisher
    unreadable: Unreadable
    intake: Intake
    certificates: SnsCertificates
    topics: set[str]

    async def queue(self, name: str) -> str:
        """Its URL."""
        made = await asyncio.to_thread(self.sqs.create_queue, QueueName=name)
        url: str = made["QueueUrl"]
        return url

    async def left(self, url: str) -> int:
        """Messages that are in the queue, received ones too."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = await asyncio.to_thread(
            self.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=names
        )
        return sum(int(value) for value in answer["Attributes"].values())

    async def holds(self, url: str, count: int) -> None:
        """Returns when so many messages are in the queue."""
        async with asyncio.timeout(20):
            while True:
                if await self.left(url) == count:
                    return
                await asyncio.sleep(0.01)

    async def put(self, url: str, body: bytes) -> None:
        await asyncio.to_thread(self.sqs.send_message, QueueUrl=url, MessageBody=body.decode())

    async def send(self, count: int) -> None:
        for number in range(count):
            mail = simple_mail(f"user{number}@example.com")
            await asyncio.to_thread(self.ses.send_email, **mail)

    async def confirmed(self) -> None:
        """Returns when the endpoint has confirmed its subscription."""
        async with asyncio.timeout(60):
            while True:
                listed = await asyncio.to_thread(
                    self.sns.list_subscriptions_by_topic, TopicArn=TOPIC_ARN
                )
                if [s for s in listed["Subscriptions"] if s["SubscriptionArn"].startswith("arn:")]:
                    return

    def allow(self, topic: str) -> None:
        self.topics.clear()
        self.topics.add(topic)

    def reader(self, url: str, kind: QueueKind) -> QueueIntake:
        source = Source(queue=SqsQueue(url), kind=kind)
        return QueueIntake([source], self.intake, self.publisher)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    publisher, unreadable_topic = Publisher(), Unreadable()
    async with Simulator(quick_settings(key_bits=2048)) as simulator:
        certificates = SnsCertificates(CertificateFetcher(simulator.url))
        topics = {TOPIC_ARN}
        settings = IntakeSettings(
            topics=topics,  # type: ignore[arg-type]  # a person changes the setting
            signature_versions=frozenset(("1", "2")),
            max_age=None,
            salt=SALT,
            events_topic="mail.delivery-events",
        )
        intake = Intake(settings, publisher, unreadable_topic, certificates, SnsConfirmer())
        clients = {name: client(name, simulator.url) for name in ("sns", "sqs", "sesv2")}
        with pytest.MonkeyPatch.context() as environment:
            for name in ("SNS", "SQS"):
                environment.setenv(f"AWS_ENDPOINT_URL_{name}", simulator.url)
            environment.setenv("AWS_ACCESS_KEY_ID", "test")
            environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
            environment.setenv("AWS_DEFAULT_REGION", "eu-central-1")
            yield Scene(
                url=simulator.url,
                sns=clients["sns"],
                sqs=clients["sqs"],
                ses=clients["sesv2"],
                publisher=publisher,
                unreadable=unreadable_topic,
                intake=intake,
                certificates=certificates,
                topics=topics,
            )
        await certificates.stop()
        for made in clients.values():
            made.close()


async def subscribe(it: Scene, name: str) -> None:
    await asyncio.to_thread(
        it.sns.subscribe, TopicArn=TOPIC_ARN, Protocol="sqs", Endpoint=QUEUE_ARN + name
    )


async def test_a_queue_that_is_subscribed_gives_every_event_and_ends_empty() -> None:
    async with scene() as it:
        url = await it.queue("ses-events")
        await subscribe(it, "ses-events")
        stage = Events(
            EventsSettings(),
            it.intake,
            it.publisher,
            it.certificates,
            it.reader(url, QueueKind.INTAKE),
        )
        await stage.start()
        running = asyncio.create_task(stage.run())
        await it.send(12)
        stranger = notification(ses_event("Delivery", delivery()), TopicArn=TOPIC_ARN + "-2")
        await it.put(url, signed(stranger))
        await eventually(lambda: len({e.id for e in it.publisher.events()}) == 24)
        await eventually(lambda: len(it.unreadable.kept) == 1)
        await it.holds(url, 0)
        await asyncio.wait_for(stage.stop(), 5)
        await running
        ((_, why),) = it.unreadable.kept
        assert why == "refused: unknown-topic"


async def test_what_the_endpoint_refused_by_mistake_is_drained_later() -> None:
    async with scene() as it:
        url = await it.queue("dead-letters")
        stage = Events(EventsSettings(), it.intake, it.publisher, it.certificates)
        await stage.start()
        policy = json.dumps({"deadLetterTargetArn": QUEUE_ARN + "dead-letters"})
        await asyncio.to_thread(
            it.sns.subscribe,
            TopicArn=TOPIC_ARN,
            Protocol="http",
            Endpoint=f"http://{stage.address}/sns",
            Attributes={"RedrivePolicy": policy, "RawMessageDelivery": "false"},
        )
        await it.confirmed()
        it.allow(TOPIC_ARN + "-other")
        await it.send(5)
        await it.holds(url, 10)
        assert not it.publisher.records
        it.allow(TOPIC_ARN)
        reader = it.reader(url, QueueKind.DEAD_LETTER)
        assert await reader.drain() == {Reason.ACCEPTED: 10}
        await reader.stop()
        await stage.stop()
        assert len({e.id for e in it.publisher.events()}) == 10


async def test_what_a_queue_does_not_give_is_unavailable() -> None:
    async with scene() as it:
        for url in (f"{it.url}/111122223333/none", "http://127.0.0.1:1/111122223333/none"):
            queue = SqsQueue(url)
            with pytest.raises(Unavailable, match="receive_message"):
                await queue.receive(wait_s=0)
            await queue.stop()
            await queue.stop()


async def test_a_receipt_that_is_none_is_told() -> None:
    async with scene() as it:
        queue = SqsQueue(await it.queue("ses-events"))
        with pytest.raises(Unavailable, match="did not delete 1"):
            await queue.delete(["nonsense"])
        await queue.stop()


async def test_a_drain_takes_all_of_it_and_tells_what_became_of_it() -> None:
    async with scene() as it:
        url = await it.queue("dead-letters")
        await subscribe(it, "dead-letters")
        await it.send(15)
        await it.holds(url, 31)  # with the sentence that a topic is set up
        await it.put(url, b"nonsense")
        reader = it.reader(url, QueueKind.DEAD_LETTER)
        counts = await reader.drain()
        await reader.stop()
        assert counts == {Reason.ACCEPTED: 31, Reason.MALFORMED: 1}
        assert len({e.id for e in it.publisher.events()}) == 30
        assert await it.left(url) == 0


async def command(*arguments: str, **settings: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "streams", *arguments),
        env={**os.environ, **{f"MAILSTREAMS_{name}": value for name, value in settings.items()}},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def values(bootstrap_servers: str, topic: str, partitions: int) -> list[bytes]:
    """Everything in the topic now."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(wanted)
        ends = await consumer.end_offsets(wanted)
        found: list[bytes] = []
        while len(found) < sum(ends.values()):
            batches = await consumer.getmany(timeout_ms=200)
            found += [record.value for batch in batches.values() for record in batch]
        return found
    finally:
        await consumer.stop()


@pytest.mark.servers
async def test_the_command_drains_a_queue_into_kafka(
    servers: devservers.Servers, topics: Topics
) -> None:
    async with scene() as it:
        url = await it.queue("dead-letters")
        await subscribe(it, "dead-letters")
        await it.send(3)
        await it.holds(url, 7)
        await it.put(url, b"user1@example.com")
        key = Fernet.generate_key()
        settings = {
            "KAFKA_BOOTSTRAP_SERVERS": servers.kafka.bootstrap_servers,
            "TOPIC_PREFIX": topics.prefix,
            "SNS_TOPICS": TOPIC_ARN,
            "SNS_CERTIFICATE_SOURCE": it.url,
            "RECIPIENT_SALT": SALT.decode(),
            "UNREADABLE_KEY": key.decode(),
        }
        status, out, err = await command("drain", url, "--json", **settings)
        assert status == 0, err
        assert json.loads(out) == {"accepted": 7, "malformed": 1}
        assert "user1" not in err
        assert await it.left(url) == 0
        status, out, _ = await command("drain", url, **settings)
        assert (status, out.strip()) == (0, "the queue is empty")
        bootstrap_servers = servers.kafka.bootstrap_servers
        assert len(await values(bootstrap_servers, topics.delivery_events, PARTITIONS)) == 6
        (kept,) = await values(bootstrap_servers, unreadable(topics.delivery_events), 1)
        assert Fernet(key).decrypt(kept) == b"user1@example.com"
        away = settings | {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
        status, _, err = await command("drain", url, **away)
        assert status == 1
        assert "Kafka" in err
