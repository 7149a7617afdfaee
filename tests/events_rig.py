"""What the tests of the events stage share: ports that record, and an intake on them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streams.domain.delivery_events import DeliveryEvent, decode
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.records import NewRecord, Record
from streams.domain.sns import TopicArn
from streams.domain.sns_certificates import Certificate, read_certificate
from streams.intake import Intake, IntakeSettings
from tests.sns_signing import SALT, TOPIC, certificate


async def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Returns as soon as it holds; fails after so long."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


@dataclass
class Publisher:
    """Keeps what is published; down: it cannot."""

    records: list[NewRecord] = field(default_factory=list)
    down: bool = False
    stopped: bool = False

    async def start(self) -> None:
        if self.down:
            raise Unavailable("Kafka is down")

    async def publish(self, records: Sequence[NewRecord]) -> None:
        await self.start()
        self.records += records

    async def stop(self) -> None:
        self.stopped = True

    def events(self) -> list[DeliveryEvent]:
        return [decode(record.value or b"") for record in self.records]


@dataclass
class Unreadable:
    kept: list[tuple[Record, str]] = field(default_factory=list)
    down: bool = False

    async def put(self, record: Record, *, reason: str) -> None:
        if self.down:
            raise Unavailable("Kafka is down")
        self.kept.append((record, reason))


@dataclass
class Certificates:
    """One certificate for every URL, or the failure given."""

    pem: bytes = field(default_factory=certificate)
    failure: Unavailable | BadMessage | None = None
    asked: list[str] = field(default_factory=list)

    async def get(self, url: str) -> Certificate:
        self.asked.append(url)
        if self.failure is not None:
            raise self.failure
        return read_certificate(self.pem)

    async def stop(self) -> None: ...


@dataclass
class Confirmer:
    confirmed: list[tuple[TopicArn, str]] = field(default_factory=list)
    down: bool = False

    async def confirm(self, topic: TopicArn, token: str) -> None:
        if self.down:
            raise Unavailable("ConfirmSubscription: AccessDenied")
        self.confirmed.append((topic, token))


@dataclass
class Rig:
    """An intake for one topic, with everything it uses."""

    publisher: Publisher = field(default_factory=Publisher)
    unreadable: Unreadable = field(default_factory=Unreadable)
    certificates: Certificates = field(default_factory=Certificates)
    confirmer: Confirmer = field(default_factory=Confirmer)
    topics: tuple[str, ...] = (TOPIC,)
    signature_versions: tuple[str, ...] = ("1", "2")
    max_age: timedelta | None = timedelta(minutes=75)

    def intake(self) -> Intake:
        settings = IntakeSettings(
            topics=frozenset(self.topics),
            signature_versions=frozenset(self.signature_versions),
            max_age=self.max_age,
            salt=SALT,
            events_topic="mail.delivery-events",
        )
        return Intake(settings, self.publisher, self.unreadable, self.certificates, self.confirmer)

    async def receive(self, body: bytes, *, now: datetime, raw_delivery: bool = False) -> str:
        """The reason's word."""
        verdict = await self.intake().receive(body, now=now, raw_delivery=raw_delivery)
        return str(verdict.reason)
