"""What the events stage needs: certificates, confirmation, a publisher, queues."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streams.domain.sns import TopicArn
from streams.domain.sns_certificates import Certificate


class SigningCertificates(Protocol):
    """The certificates that SNS signs with. It is only asked for URLs that passed the rules."""

    async def get(self, url: str) -> Certificate:
        """The certificate of this URL; Unavailable if there is none now, BadMessage if it is none that can be taken."""

    async def stop(self) -> None: ...


class SubscriptionConfirmer(Protocol):
    """Confirms the subscription of this endpoint by a signed call, so that only we can undo it."""

    async def confirm(self, topic: TopicArn, token: str) -> None:
        """Returns when it is confirmed, also when it was before; Unavailable otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that a queue hides from others for a while. receipt: with what it is deleted."""

    body: bytes
    receipt: str


class MessageQueue(Protocol):
    """A queue that SNS delivers to, or puts its dead letters into."""

    @property
    def name(self) -> str: ...

    async def receive(self, *, wait_s: int) -> Sequence[QueuedMessage]:
        """Up to ten messages, as soon as there are some; none if none came for so long. Unavailable when SQS does not answer."""

    async def delete(self, receipts: Sequence[str]) -> None:
        """Deletes up to ten messages. What could not be deleted comes again: Unavailable then."""

    async def stop(self) -> None: ...
