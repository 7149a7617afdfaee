"""Topics and subscriptions of the simulated SNS: state and its changes, no I/O."""

import asyncio
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlencode

from streams.simulator.identifiers import random_uuid
from streams.simulator.regions import partition, sns_host
from streams.simulator.retry_policy import RetryPolicy
from streams.simulator.settings import SignatureVersions
from streams.simulator.sns_parameters import (
    invalid_parameter,
    subscription_not_found,
    topic_not_found,
)
from streams.simulator.sns_signing import VersionChoice

TOKEN_LIFE_S = 2 * 24 * 3600.0
_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")


class SubscriptionState(StrEnum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionAttributes:
    """What a subscriber may set; the texts are as they were given, None: the topic's value."""

    retry_policy: RetryPolicy | None = None
    receives_per_second: int | None = None
    delivery_policy_text: str | None = None
    redrive_policy_text: str | None = None
    dead_letter_queue: str | None = None
    content_type: str | None = None
    raw: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAttributes:
    """What the owner of a topic may set besides the signature version."""

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    receives_per_second: int | None = None
    disable_overrides: bool = False
    content_type: str = "text/plain; charset=UTF-8"
    delivery_policy_text: str | None = None
    texts: tuple[tuple[str, str], ...] = ()
    """Attributes that are kept and shown, and change nothing."""


@dataclass(slots=True, kw_only=True)
class Subscription:
    """One endpoint of one topic."""

    arn: str
    topic: "Topic"
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

    @property
    def topic_arn(self) -> str:
        return self.topic.arn

    @property
    def retry_policy(self) -> RetryPolicy:
        own = None if self.topic.attributes.disable_overrides else self.attributes.retry_policy
        return own or self.topic.attributes.retry_policy

    @property
    def receives_per_second(self) -> int | None:
        topic = self.topic.attributes
        own = None if topic.disable_overrides else self.attributes.receives_per_second
        return own or topic.receives_per_second

    @property
    def content_type(self) -> str:
        return self.attributes.content_type or self.topic.attributes.content_type


class Topic:
    """One topic with its subscriptions."""

    def __init__(self, *, arn: str, region: str, versions: SignatureVersions) -> None:
        self.arn = arn
        self.attributes = TopicAttributes()
        self.versions = VersionChoice(versions)
        self.subscriptions: dict[str, Subscription] = {}
        self._removed: dict[str, Subscription] = {}
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
            topic=self,
            protocol=protocol,
            endpoint=endpoint,
            token=_new_token(),
            token_expires_at=now + TOKEN_LIFE_S,
            attributes=attributes,
        )
        self.subscriptions[subscription.arn] = subscription
        return subscription

    def confirm(self, *, token: str, authenticated_unsubscribe: bool, now: float) -> Subscription:
        """Confirm by token; once more changes nothing. A wrong token is an InvalidParameter.

        The token of an UnsubscribeConfirmation restores what was unsubscribed.
        """
        for subscription in (*self.subscriptions.values(), *self._removed.values()):
            if subscription.token == token and now < subscription.token_expires_at:
                if subscription.state is not SubscriptionState.CONFIRMED:
                    subscription.authenticated_unsubscribe = authenticated_unsubscribe
                    self._set_confirmed(subscription)
                return subscription
        raise invalid_parameter("Token")

    def _set_confirmed(self, subscription: Subscription) -> None:
        self._removed.pop(subscription.arn, None)
        self.subscriptions[subscription.arn] = subscription
        subscription.state = SubscriptionState.CONFIRMED
        subscription.settled.set()

    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        del self.subscriptions[subscription.arn]
        self._removed[subscription.arn] = subscription
        subscription.state = SubscriptionState.DELETED
        subscription.token, subscription.token_expires_at = _new_token(), now + TOKEN_LIFE_S
        subscription.settled.set()

    def subscribe_url(self, token: str) -> str:
        query = urlencode({"Action": "ConfirmSubscription", "TopicArn": self.arn, "Token": token})
        return f"{self._host}/?{query}"


class Topics:
    """The topics of the account and region, by ARN."""

    def __init__(self, *, region: str, account_id: str) -> None:
        self._region = region
        self._prefix = f"arn:{partition(region)}:sns:{region}:{account_id}:"
        self._topics: dict[str, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def arn_of(self, name: str) -> str:
        """The ARN of a name; an ARN stays what it is."""
        return name if name.startswith("arn:") else self._prefix + name

    def create(self, name: str, versions: SignatureVersions = SignatureVersions.V1) -> Topic:
        """The topic of a name, a new one or the one there is."""
        if not _NAME.fullmatch(name):
            raise invalid_parameter("Topic Name")
        arn = self.arn_of(name)
        if arn not in self._topics:
            self._topics[arn] = Topic(arn=arn, region=self._region, versions=versions)
        return self._topics[arn]

    def delete(self, arn: str) -> None:
        """Its subscriptions go with it; a topic that is not there is not missed."""
        topic = self._topics.pop(arn, None)
        for subscription in [] if topic is None else list(topic.subscriptions.values()):
            subscription.state = SubscriptionState.DELETED
            subscription.settled.set()

    def find(self, arn: str) -> Topic | None:
        return self._topics.get(arn)

    def get(self, arn: str) -> Topic:
        topic = self._topics.get(arn)
        if topic is None:
            raise topic_not_found()
        return topic

    def subscription(self, arn: str) -> Subscription:
        topic = self._topics.get(arn.rpartition(":")[0])
        found = None if topic is None else topic.subscriptions.get(arn)
        if found is None:
            raise subscription_not_found()
        return found

    def subscriptions(self) -> list[Subscription]:
        return [item for topic in self for item in topic.subscriptions.values()]


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
