"""Actions of SNS on topics: create, delete, list, attributes, publish."""

import time
from collections.abc import Callable

from streams.simulator import sns_envelopes, sns_xml
from streams.simulator.settings import SignatureVersions
from streams.simulator.sns_attributes import effective_policy, read_topic_attribute
from streams.simulator.sns_delivery import SnsDeliveries
from streams.simulator.sns_parameters import SnsCall, invalid_parameter
from streams.simulator.sns_topic import Topic, Topics

MAX_MESSAGE_BYTES = 262_144


class SnsTopicActions:
    """`actions` by their names; each answers the inner XML of its result."""

    def __init__(self, *, topics: Topics, account_id: str, deliveries: SnsDeliveries) -> None:
        self._topics = topics
        self._account_id = account_id
        self._deliveries = deliveries
        self.actions: dict[str, Callable[[SnsCall], str]] = {
            "CreateTopic": self._create,
            "DeleteTopic": self._delete,
            "ListTopics": self._list,
            "GetTopicAttributes": self._get_attributes,
            "SetTopicAttributes": self._set_attributes,
            "Publish": self._publish,
        }

    def _create(self, call: SnsCall) -> str:
        """Creating it again answers the one there is, attributes unchanged."""
        name = call.required("Name")
        known = self._topics.find(self._topics.arn_of(name))
        topic = known or self._topics.create(name)
        for attribute, value in () if known else call.attributes():
            _set(topic, attribute, value)
        return sns_xml.tag("TopicArn", topic.arn)

    def _delete(self, call: SnsCall) -> str:
        self._topics.delete(call.required("TopicArn"))
        return ""

    def _list(self, _call: SnsCall) -> str:
        return sns_xml.members(
            "Topics", [sns_xml.tag("TopicArn", topic.arn) for topic in self._topics]
        )

    def _get_attributes(self, call: SnsCall) -> str:
        topic = self._topics.get(call.required("TopicArn"))
        versions, confirmed = topic.versions.versions, len(topic.confirmed)
        own = topic.attributes
        return sns_xml.attributes(
            {
                "TopicArn": topic.arn,
                "Owner": self._account_id,
                "SubscriptionsConfirmed": str(confirmed),
                "SubscriptionsPending": str(len(topic.subscriptions) - confirmed),
                "SubscriptionsDeleted": "0",
                "SignatureVersion": "2" if versions is SignatureVersions.V2 else "1",
                "DeliveryPolicy": own.delivery_policy_text,
                "EffectiveDeliveryPolicy": effective_policy(
                    own.retry_policy, own.receives_per_second
                ),
                **dict(own.texts),
            }
        )

    def _set_attributes(self, call: SnsCall) -> str:
        topic = self._topics.get(call.required("TopicArn"))
        _set(topic, call.required("AttributeName"), call.text("AttributeValue"))
        return ""

    def _publish(self, call: SnsCall) -> str:
        topic = self._topics.get(call.required("TopicArn"))
        text, subject = call.required("Message"), call.parameters.get("Subject")
        if len(text.encode()) > MAX_MESSAGE_BYTES:
            raise invalid_parameter("Message too long")
        if subject is not None and not 1 <= len(subject) <= 100:
            raise invalid_parameter("Subject")
        message = sns_envelopes.notification(topic, text, subject=subject, now=time.time())
        for subscription in topic.confirmed:
            self._deliveries.put(message, subscription, counted=True)
        return sns_xml.tag("MessageId", message.message_id)


def _set(topic: Topic, name: str, value: str) -> None:
    if name != "SignatureVersion":
        topic.attributes = read_topic_attribute(topic.attributes, name, value)
    elif value in ("1", "2"):
        topic.versions.versions = SignatureVersions(value)
    else:
        raise invalid_parameter("SignatureVersion: must be 1 or 2")
