"""The JSON documents and headers that SNS posts to an endpoint."""

from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlencode

from streams.simulator.clock import iso_milliseconds
from streams.simulator.identifiers import random_uuid
from streams.simulator.sns_topic import Subscription, Topic

USER_AGENT = "Amazon Simple Notification Service Agent"


@dataclass(slots=True, kw_only=True)
class SnsMessage:
    """One message of a topic; signed once, whoever it goes to.

    `fields` are those of the envelope up to the signature, in SNS's order.
    """

    fields: dict[str, str]
    signature_version: str
    signature: str | None = field(default=None)

    @property
    def message_id(self) -> str:
        return self.fields["MessageId"]

    @property
    def type(self) -> str:
        return self.fields["Type"]

    @property
    def text(self) -> str:
        return self.fields["Message"]


def notification(topic: Topic, text: str, *, subject: str | None, now: float) -> SnsMessage:
    fields = {"Type": "Notification", "MessageId": random_uuid(), "TopicArn": topic.arn}
    if subject is not None:
        fields["Subject"] = subject
    fields |= {"Message": text, "Timestamp": iso_milliseconds(now)}
    return SnsMessage(fields=fields, signature_version=topic.versions.next())


def subscription_confirmation(topic: Topic, subscription: Subscription, now: float) -> SnsMessage:
    return _confirmation(
        "SubscriptionConfirmation",
        f"You have chosen to subscribe to the topic {topic.arn}.\n"
        "To confirm the subscription, visit the SubscribeURL included in this message.",
        topic,
        subscription,
        now,
    )


def unsubscribe_confirmation(topic: Topic, subscription: Subscription, now: float) -> SnsMessage:
    return _confirmation(
        "UnsubscribeConfirmation",
        f"You have chosen to deactivate subscription {subscription.arn}.\n"
        "To cancel this operation and restore the subscription, visit the SubscribeURL included "
        "in this message.",
        topic,
        subscription,
        now,
    )


def _confirmation(
    kind: str, text: str, topic: Topic, subscription: Subscription, now: float
) -> SnsMessage:
    return SnsMessage(
        fields={
            "Type": kind,
            "MessageId": random_uuid(),
            "Token": subscription.token,
            "TopicArn": topic.arn,
            "Message": text,
            "SubscribeURL": topic.subscribe_url(subscription.token),
            "Timestamp": iso_milliseconds(now),
        },
        signature_version=topic.versions.next(),
    )


def envelope(
    message: SnsMessage, subscription_arn: str, host: str, certificate_path: str
) -> dict[str, str]:
    """The signed document as one subscriber gets it; `host` is the URL of SNS in the region."""
    document = dict(message.fields)
    document["SignatureVersion"] = message.signature_version
    document["Signature"] = message.signature or ""
    document["SigningCertURL"] = f"{host}{certificate_path}"
    if message.type == "Notification":
        document["UnsubscribeURL"] = f"{host}/?{_unsubscribe_query(subscription_arn)}"
    return document


@lru_cache(maxsize=64)
def _unsubscribe_query(subscription_arn: str) -> str:
    return urlencode({"Action": "Unsubscribe", "SubscriptionArn": subscription_arn})


def headers(message: SnsMessage, subscription: Subscription) -> dict[str, str]:
    result = {
        "Content-Type": subscription.content_type,
        "User-Agent": USER_AGENT,
        "x-amz-sns-message-type": message.type,
        "x-amz-sns-message-id": message.message_id,
        "x-amz-sns-topic-arn": subscription.topic_arn,
    }
    if message.type != "SubscriptionConfirmation":
        result["x-amz-sns-subscription-arn"] = subscription.arn
    if message.type == "Notification" and subscription.attributes.raw:
        result["x-amz-sns-rawdelivery"] = "true"
    return result
