"""The Protocols that stages need, each as narrow as its stage; adapters provide them, the command wires them."""

from collections.abc import Sequence
from typing import Protocol

from streams.domain.records import NewRecord, Record
from streams.domain.sns import TopicArn
from streams.domain.sns_certificates import Certificate

# Events ---------------------------------------------------------------------------------------------------------------


class EventPublisher(Protocol):
    """Writes records so that they count only when every in-sync replica has them."""

    async def start(self) -> None:
        """Connects, if it is not connected; Unavailable when no broker answers."""

    async def publish(self, records: Sequence[NewRecord]) -> None:
        """Returns when all of them are acknowledged; Unavailable when one may not be."""

    async def stop(self) -> None: ...


class SetAside(Protocol):
    """Keeps what cannot be read, encrypted."""

    async def put(self, record: Record, *, reason: str) -> None:
        """Returns when it is acknowledged; Unavailable otherwise."""


class SigningCertificates(Protocol):
    """The certificates that SNS signs with. It is only asked for URLs that passed the rules."""

    async def get(self, url: str) -> Certificate:
        """The certificate of this URL; Unavailable if there is none now, BadMessage if it is none that can be taken."""

    async def stop(self) -> None: ...


class SubscriptionConfirmer(Protocol):
    """Confirms the subscription of this endpoint by a signed call, so that only we can undo it."""

    async def confirm(self, topic: TopicArn, token: str) -> None:
        """Returns when it is confirmed, also when it was before; Unavailable otherwise."""
