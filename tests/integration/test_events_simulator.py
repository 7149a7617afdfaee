"""The endpoint with the simulated SNS as its peer: subscription, signatures, retries."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from streams.adapters.sns import CertificateFetcher, SnsCertificates, SnsConfirmer
from streams.domain.addresses import recipient_key
from streams.domain.delivery_events import DeliveryEvent
from streams.events import Events, EventsSettings
from streams.intake import Intake, IntakeSettings
from streams.simulator.server import Simulator
from streams.simulator.settings import SignatureVersions
from tests.events_rig import Publisher, Unreadable, eventually
from tests.simulator_rig import (
    TOPIC_ARN,
    Control,
    client,
    quick_settings,
    simple_mail,
)
from tests.sns_signing import SALT

ATTEMPT = "0190b2c4-0000-7000-8000-000000000001"
OUTBOX = "0190b2c4-0000-7000-8000-000000000002"
TAGS = [
    {"Name": "attempt", "Value": ATTEMPT},
    {"Name": "outbox", "Value": OUTBOX},
    {"Name": "tenant", "Value": "shop"},
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A simulator whose events come to our endpoint."""

    publisher: Publisher
    unreadable: Unreadable
    control: Control
    ses: Any

    async def send(self, to: str) -> str:
        mail = simple_mail(to, EmailTags=TAGS)
        answer = await asyncio.to_thread(self.ses.send_email, **mail)
        message_id: str = answer["MessageId"]
        return message_id

    def events(self, message_id: str) -> list[DeliveryEvent]:
        found = {e.id: e for e in self.publisher.events()}
        return [e for e in found.values() if e.provider_message_id == message_id]

    def types(self, message_id: str) -> list[str]:
        return sorted(e.type.value for e in self.events(message_id))


@asynccontextmanager
async def scene(**changes: Any) -> AsyncIterator[Scene]:
    publisher, unreadable = Publisher(), Unreadable()
    async with (
        Simulator(quick_settings(key_bits=2048, **changes)) as simulator,
        aiohttp.ClientSession() as session,
    ):
        certificates = SnsCertificates(CertificateFetcher(simulator.url))
        settings = IntakeSettings(
            topics=frozenset((TOPIC_ARN,)),
            signature_versions=frozenset(("1", "2")),
            max_age=None,
            salt=SALT,
            events_topic="mail.delivery-events",
        )
        intake = Intake(settings, publisher, unreadable, certificates, SnsConfirmer())
        stage = Events(EventsSettings(), intake, publisher, certificates)
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("AWS_ENDPOINT_URL_SNS", simulator.url)
            environment.setenv("AWS_ACCESS_KEY_ID", "test")
            environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
            await stage.start()
            sns, ses = client("sns", simulator.url), client("sesv2", simulator.url)
            try:
                await subscribe(sns, f"http://{stage.address}/sns")
                yield Scene(
                    publisher=publisher,
                    unreadable=unreadable,
                    control=Control(session, simulator.url),
                    ses=ses,
                )
            finally:
                await stage.stop()
                sns.close()
                ses.close()


async def subscribe(sns: Any, endpoint: str) -> None:
    """Returns when the endpoint has confirmed."""
    await asyncio.to_thread(sns.subscribe, TopicArn=TOPIC_ARN, Protocol="http", Endpoint=endpoint)
    confirmed = asyncio.Event()

    async def watch() -> None:
        while not confirmed.is_set():
            listed = await asyncio.to_thread(sns.list_subscriptions_by_topic, TopicArn=TOPIC_ARN)
            if any(s["SubscriptionArn"].startswith("arn:") for s in listed["Subscriptions"]):
                confirmed.set()

    async with asyncio.timeout(20):
        await watch()


FATES = {
    "success@simulator.amazonses.com": ["accepted", "delivered"],
    "bounce+1@simulator.amazonses.com": ["accepted", "bounced"],
    "complaint@simulator.amazonses.com": ["accepted", "complained", "delivered"],
    "ooto@simulator.amazonses.com": ["accepted", "bounced", "delivered"],
    "suppressionlist@simulator.amazonses.com": ["accepted", "bounced"],
    "late@example.com": ["accepted", "delayed", "delivered"],
    "virus@example.com": ["accepted", "rejected"],
    "ann@example.com": ["accepted", "delivered"],
}
RULES = [
    {"match": "late@*", "outcome": "delay", "delay_type": "MailboxFull"},
    {"match": "virus@*", "outcome": "reject"},
]


@pytest.mark.parametrize("versions", list(SignatureVersions))
async def test_every_fate_arrives_as_events_of_its_attempt(versions: SignatureVersions) -> None:
    async with scene(signature_version=versions) as it:
        await it.control.post("rules", rules=RULES)
        sent = {await it.send(address): address for address in FATES}
        await it.control.quiet()
        for message_id, address in sent.items():
            assert it.types(message_id) == FATES[address], address
            for event in it.events(message_id):
                assert event.recipient_key == recipient_key(address, SALT)
                assert event.attempt_id == UUID(ATTEMPT)
                assert event.outbox_id == UUID(OUTBOX)
                assert event.tenant == "shop"
        assert not it.unreadable.kept


async def test_what_kafka_refused_for_a_while_arrives_by_sns_coming_again() -> None:
    async with scene() as it:
        it.publisher.down = True
        sent = [await it.send(f"user{n}@example.com") for n in range(5)]
        await it.control.until(lambda state: state["events"]["pending"] > 0)
        it.publisher.down = False
        await eventually(lambda: all(it.types(id_) == ["accepted", "delivered"] for id_ in sent))


async def test_a_fact_that_sns_delivers_twice_is_one_event() -> None:
    async with scene() as it:
        await it.control.post("events", duplicate_share=1.0)
        message_id = await it.send("ann@example.com")
        await it.control.quiet()
        ids = Counter(e.id for e in it.publisher.events() if e.provider_message_id == message_id)
        assert sorted(ids.values()) == [2, 2]
        assert it.types(message_id) == ["accepted", "delivered"]
