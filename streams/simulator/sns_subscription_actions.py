"""Actions of SNS on subscriptions: subscribe, confirm, unsubscribe, list, attributes."""

import time
from collections.abc import Callable

from streams.simulator import sns_envelopes, sns_xml
from streams.simulator.regions import QUEUE_ARN
from streams.simulator.sns_attributes import effective_policy, read_attribute
from streams.simulator.sns_delivery import SnsDeliveries
from streams.simulator.sns_parameters import SnsCall, authorization_error, invalid_parameter
from streams.simulator.sns_topic import (
    Subscription,
    SubscriptionAttributes,
    SubscriptionState,
    Topic,
    Topics,
)


class SnsSubscriptionActions:
    """`actions` by their names; `confirmed` is told of each subscription that becomes confirmed."""

    def __init__(
        self,
        *,
        topics: Topics,
        account_id: str,
        deliveries: SnsDeliveries,
        confirmed: Callable[[Subscription], None],
    ) -> None:
        self._topics = topics
        self._account_id = account_id
        self._deliveries = deliveries
        self._confirmed = confirmed
        self.actions: dict[str, Callable[[SnsCall], str]] = {
            "Subscribe": self._subscribe,
            "ConfirmSubscription": self._confirm,
            "Unsubscribe": self._unsubscribe,
            "ListSubscriptions": self._list,
            "ListSubscriptionsByTopic": self._list_by_topic,
            "GetSubscriptionAttributes": self._get_attributes,
            "SetSubscriptionAttributes": self._set_attributes,
        }

    def subscribe(
        self, topic: Topic, protocol: str, endpoint: str, attributes: SubscriptionAttributes
    ) -> Subscription:
        """Subscribe an endpoint and ask it for confirmation unless it is confirmed.

        A queue of the subscriber's own account needs no confirmation.
        """
        check_endpoint(protocol, endpoint)
        now = time.time()
        subscription = topic.subscribe(
            protocol=protocol, endpoint=endpoint, attributes=attributes, now=now
        )
        if subscription.state is SubscriptionState.PENDING and protocol == "sqs":
            topic.confirm(token=subscription.token, authenticated_unsubscribe=True, now=now)
            self._confirmed(subscription)
        elif subscription.state is SubscriptionState.PENDING:
            message = sns_envelopes.subscription_confirmation(topic, subscription, now)
            self._deliveries.put(message, subscription, counted=False)
        return subscription

    def _subscribe(self, call: SnsCall) -> str:
        topic = self._topics.get(call.required("TopicArn"))
        protocol, endpoint = call.required("Protocol"), call.required("Endpoint")
        check_endpoint(protocol, endpoint)
        attributes = SubscriptionAttributes()
        for name, value in call.attributes():
            attributes = read_attribute(attributes, name, value)
        subscription = self.subscribe(topic, protocol, endpoint, attributes)
        pending = subscription.state is SubscriptionState.PENDING
        hidden = pending and not call.flag("ReturnSubscriptionArn")
        return sns_xml.tag(
            "SubscriptionArn", "pending confirmation" if hidden else subscription.arn
        )

    def _confirm(self, call: SnsCall) -> str:
        topic = self._topics.get(call.required("TopicArn"))
        authenticated = call.flag("AuthenticateOnUnsubscribe")
        if authenticated and not call.signed:
            raise authorization_error("AuthenticateOnUnsubscribe needs a signed call")
        before = {subscription.arn for subscription in topic.confirmed}
        subscription = topic.confirm(
            token=call.required("Token"), authenticated_unsubscribe=authenticated, now=time.time()
        )
        if subscription.arn not in before:
            self._confirmed(subscription)
        return sns_xml.tag("SubscriptionArn", subscription.arn)

    def _unsubscribe(self, call: SnsCall) -> str:
        subscription = self._topics.subscription(call.required("SubscriptionArn"))
        if subscription.authenticated_unsubscribe and not call.signed:
            raise authorization_error("Unsubscribe needs a signed call for this subscription")
        now = time.time()
        subscription.topic.unsubscribe(subscription, now)
        if subscription.protocol != "sqs":
            message = sns_envelopes.unsubscribe_confirmation(subscription.topic, subscription, now)
            self._deliveries.put(message, subscription, counted=False)
        return ""

    def _list(self, _call: SnsCall) -> str:
        return self._members(self._topics.subscriptions())

    def _list_by_topic(self, call: SnsCall) -> str:
        topic = self._topics.get(call.required("TopicArn"))
        return self._members(list(topic.subscriptions.values()))

    def _members(self, subscriptions: list[Subscription]) -> str:
        return sns_xml.members("Subscriptions", [self._member(item) for item in subscriptions])

    def _member(self, subscription: Subscription) -> str:
        pending = subscription.state is SubscriptionState.PENDING
        return (
            sns_xml.tag("SubscriptionArn", "PendingConfirmation" if pending else subscription.arn)
            + sns_xml.tag("Owner", self._account_id)
            + sns_xml.tag("Protocol", subscription.protocol)
            + sns_xml.tag("Endpoint", subscription.endpoint)
            + sns_xml.tag("TopicArn", subscription.topic_arn)
        )

    def _get_attributes(self, call: SnsCall) -> str:
        subscription = self._topics.subscription(call.required("SubscriptionArn"))
        attributes = subscription.attributes
        pending = subscription.state is SubscriptionState.PENDING
        return sns_xml.attributes(
            {
                "SubscriptionArn": subscription.arn,
                "TopicArn": subscription.topic_arn,
                "Owner": self._account_id,
                "Protocol": subscription.protocol,
                "Endpoint": subscription.endpoint,
                "PendingConfirmation": str(pending).lower(),
                "ConfirmationWasAuthenticated": str(subscription.authenticated_unsubscribe).lower(),
                "RawMessageDelivery": str(attributes.raw).lower(),
                "DeliveryPolicy": attributes.delivery_policy_text,
                "EffectiveDeliveryPolicy": effective_policy(
                    subscription.retry_policy, subscription.receives_per_second
                ),
                "RedrivePolicy": attributes.redrive_policy_text,
            }
        )

    def _set_attributes(self, call: SnsCall) -> str:
        subscription = self._topics.subscription(call.required("SubscriptionArn"))
        subscription.attributes = read_attribute(
            subscription.attributes, call.required("AttributeName"), call.text("AttributeValue")
        )
        return ""


def check_endpoint(protocol: str, endpoint: str) -> None:
    if protocol not in ("http", "https", "sqs"):
        raise invalid_parameter(f"Does not support this protocol string: {protocol}")
    if protocol == "sqs":
        if not QUEUE_ARN.fullmatch(endpoint):
            raise invalid_parameter("SQS endpoint ARN")
    elif not endpoint.startswith(f"{protocol}://"):
        raise invalid_parameter("Endpoint must match the specified protocol")
