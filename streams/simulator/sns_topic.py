"""Topics and subscriptions of the simulated SNS: state and its changes, no I/O."""

import asyncio
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlencode

from streams.simulator.identifiers import random_uuid
from streams.simulator.refusals import RefusedError
from streams.simulator.regions import sns_host
from streams.simulator.retry_policy import RetryPolicy
from streams.simulator.settings import SignatureVersions
from streams.simulator.sns_signing import VersionChoice

TOKEN_LIFE_S = 2 * 24 * 3600.0


class SubscriptionState(StrEnum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionAttributes:
    """What a subscriber may set; the texts are as they were given."""

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    delivery_policy_text: str | None = None
    redrive_policy_text: str | None = None
    dead_letter_queue: str | None = None
    content_type: str = "text/plain; charset=UTF-8"
    raw: bool = False


@dataclass(slots=True, kw_only=True)
class Subscription:
    """One endpoint of one topic."""

    arn: str
    topic_arn: str
    protocol: str
    endpoint: str
    token: str
    token_expires_at: float
    attributes: SubscriptionAttributes
    state: SubscriptionState = SubscriptionState.PENDING
    authenticated_unsubscribe: bool = False
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is confirmed or deleted."""
    delivered: int = 0
    dead: int = 0


def invalid_parameter(message: str) -> RefusedError:
    return RefusedError(
        code="InvalidParameter", status=400, message=f"Invalid parameter: {message}"
    )


def topic_not_found() -> RefusedError:
    return RefusedError(code="NotFound", status=404, message="Topic does not exist")


def subscription_not_found() -> RefusedError:
    return RefusedError(code="NotFound", status=404, message="Subscription does not exist")


class Topic:
    """The one topic that the configuration sets publish to."""

    def __init__(self, *, arn: str, region: str, versions: SignatureVersions) -> None:
        self.arn = arn
        self.versions = VersionChoice(versions)
        self.subscriptions: dict[str, Subscription] = {}
        self._host = sns_host(region)

    @property
    def confirmed(self) -> list[Subscription]:
        return [
            subscription
            for subscription in self.subscriptions.values()
            if subscription.state is SubscriptionState.CONFIRMED
        ]

    def subscribe(
        self, *, protocol: str, endpoint: str, attributes: SubscriptionAttributes, now: float
    ) -> Subscription:
        """The subscription of an endpoint: the one there is, or a new one that is pending."""
        for subscription in self.subscriptions.values():
            if (subscription.protocol, subscription.endpoint) == (protocol, endpoint):
                return _again(subscription, attributes, now)
        subscription = Subscription(
            arn=f"{self.arn}:{random_uuid()}",
            topic_arn=self.arn,
            protocol=protocol,
            endpoint=endpoint,
            token=_new_token(),
            token_expires_at=now + TOKEN_LIFE_S,
            attributes=attributes,
        )
        self.subscriptions[subscription.arn] = subscription
        return subscription

    def confirm(self, *, token: str, authenticated_unsubscribe: bool, now: float) -> Subscription:
        """Confirm by token; once more changes nothing. A wrong token is an InvalidParameter."""
        for subscription in self.subscriptions.values():
            if subscription.token == token and now < subscription.token_expires_at:
                if subscription.state is not SubscriptionState.CONFIRMED:
                    subscription.authenticated_unsubscribe = authenticated_unsubscribe
                    subscription.state = SubscriptionState.CONFIRMED
                    subscription.settled.set()
                return subscription
        raise invalid_parameter("Token")

    def unsubscribe(self, arn: str) -> Subscription:
        subscription = self.subscriptions.pop(arn, None)
        if subscription is None:
            raise subscription_not_found()
        subscription.state = SubscriptionState.DELETED
        subscription.settled.set()
        return subscription

    def subscribe_url(self, token: str) -> str:
        query = urlencode({"Action": "ConfirmSubscription", "TopicArn": self.arn, "Token": token})
        return f"{self._host}/?{query}"


def _again(
    subscription: Subscription, attributes: SubscriptionAttributes, now: float
) -> Subscription:
    if subscription.state is SubscriptionState.PENDING:
        subscription.attributes = attributes
        if now >= subscription.token_expires_at:
            subscription.token = _new_token()
            subscription.token_expires_at = now + TOKEN_LIFE_S
    elif subscription.attributes != attributes:
        raise invalid_parameter(
            "Attributes Reason: Subscription already exists with different attributes"
        )
    return subscription


def _new_token() -> str:
    return secrets.token_hex(128)
