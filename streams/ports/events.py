"""What the events stage needs: certificates, confirmation, a publisher."""

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
