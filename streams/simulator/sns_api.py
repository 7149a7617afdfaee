"""The Query protocol of SNS: subscriptions of one topic."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qsl

from aiohttp import web

from streams.simulator import sns_envelopes
from streams.simulator.identifiers import random_uuid
from streams.simulator.refusals import RefusedError
from streams.simulator.requests import read_body, signed_request
from streams.simulator.settings import SignatureVersions, SimulatorSettings
from streams.simulator.sigv4 import SignatureVerifier, sns_scope
from streams.simulator.sns_attributes import read_attribute
from streams.simulator.sns_delivery import SnsDeliveries
from streams.simulator.sns_topic import (
    Subscription,
    SubscriptionAttributes,
    SubscriptionState,
    Topic,
    invalid_parameter,
    subscription_not_found,
    topic_not_found,
)

Parameters = dict[str, str]
_NAMESPACE = "http://sns.amazonaws.com/doc/2010-03-31/"
_UNSIGNED = ("ConfirmSubscription", "Unsubscribe")
_QUEUE_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,80}")
_ENTRY = re.compile(r"Attributes\.entry\.(\d+)\.key")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The parameters of an action, and whether its caller is known."""

    parameters: Parameters
    signed: bool


class SnsApi:
    """Answers actions; `confirmed` is told of each subscription that becomes confirmed."""

    def __init__(
        self,
        *,
        settings: SimulatorSettings,
        topic: Topic,
        deliveries: SnsDeliveries,
        verifier: SignatureVerifier,
        confirmed: Callable[[Subscription], None],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._deliveries = deliveries
        self._verifier = verifier
        self._confirmed = confirmed
        self._scope = sns_scope(settings.region)
        self._actions: dict[str, Callable[[_Call], str]] = {
            "Subscribe": self._subscribe,
            "ConfirmSubscription": self._confirm,
            "Unsubscribe": self._unsubscribe,
            "ListSubscriptions": self._list,
            "ListSubscriptionsByTopic": self._list_by_topic,
            "ListTopics": self._list_topics,
            "GetSubscriptionAttributes": self._get_subscription_attributes,
            "SetSubscriptionAttributes": self._set_subscription_attributes,
            "GetTopicAttributes": self._get_topic_attributes,
            "SetTopicAttributes": self._set_topic_attributes,
        }

    async def handle(self, request: web.Request) -> web.Response:
        request_id, action = random_uuid(), ""
        try:
            body = await read_body(request)
            form = body.decode("utf-8", "replace")
            parameters = dict(parse_qsl(form or request.query_string, keep_blank_values=True))
            action = parameters.get("Action", "")
            signed = self._authenticate(request, body, action)
            result = self._perform(action, _Call(parameters=parameters, signed=signed))
        except RefusedError as error:
            return _xml(error.status, _error(error, request_id), request_id)
        return _xml(200, _success(action, result, request_id), request_id)

    def subscribe(
        self, protocol: str, endpoint: str, attributes: SubscriptionAttributes
    ) -> Subscription:
        """Subscribe an endpoint and ask it for confirmation unless it is confirmed.

        A queue of the subscriber's own account needs no confirmation.
        """
        now = time.time()
        subscription = self._topic.subscribe(
            protocol=protocol, endpoint=endpoint, attributes=attributes, now=now
        )
        if subscription.state is SubscriptionState.PENDING and protocol == "sqs":
            self._topic.confirm(token=subscription.token, authenticated_unsubscribe=True, now=now)
            self._confirmed(subscription)
        elif subscription.state is SubscriptionState.PENDING:
            message = sns_envelopes.subscription_confirmation(self._topic, subscription, now)
            self._deliveries.put(message, subscription, counted=False)
        return subscription

    def _authenticate(self, request: web.Request, body: bytes, action: str) -> bool:
        """Whether the call is signed; a call of most actions must be."""
        if action in _UNSIGNED and "Authorization" not in request.headers:
            return False
        self._verifier.verify(signed_request(request, body), self._scope, time.time())
        return True

    def _perform(self, action: str, call: _Call) -> str:
        perform = self._actions.get(action)
        if perform is None:
            raise RefusedError(
                code="InvalidAction",
                status=400,
                message=f"The action {action} is not valid for this endpoint.",
            )
        return perform(call)

    def _subscribe(self, call: _Call) -> str:
        self._check_topic(call.parameters)
        protocol, endpoint = (
            _required(call.parameters, "Protocol"),
            _required(call.parameters, "Endpoint"),
        )
        _check_endpoint(protocol, endpoint)
        attributes = SubscriptionAttributes()
        for name, value in _attributes(call.parameters):
            attributes = read_attribute(attributes, name, value)
        subscription = self.subscribe(protocol, endpoint, attributes)
        pending = subscription.state is SubscriptionState.PENDING
        hidden = pending and call.parameters.get("ReturnSubscriptionArn", "false").lower() != "true"
        return _tag("SubscriptionArn", "pending confirmation" if hidden else subscription.arn)

    def _confirm(self, call: _Call) -> str:
        self._check_topic(call.parameters)
        authenticated = call.parameters.get("AuthenticateOnUnsubscribe", "false").lower() == "true"
        if authenticated and not call.signed:
            raise _authorization_error("AuthenticateOnUnsubscribe needs a signed call")
        token = _required(call.parameters, "Token")
        before = {subscription.arn for subscription in self._topic.confirmed}
        subscription = self._topic.confirm(
            token=token, authenticated_unsubscribe=authenticated, now=time.time()
        )
        if subscription.arn not in before:
            self._confirmed(subscription)
        return _tag("SubscriptionArn", subscription.arn)

    def _unsubscribe(self, call: _Call) -> str:
        subscription = self._subscription(call.parameters)
        if subscription.authenticated_unsubscribe and not call.signed:
            raise _authorization_error("Unsubscribe needs a signed call for this subscription")
        self._topic.unsubscribe(subscription.arn)
        if subscription.protocol != "sqs":
            message = sns_envelopes.unsubscribe_confirmation(self._topic, subscription, time.time())
            self._deliveries.put(message, subscription, counted=False)
        return ""

    def _list(self, _call: _Call) -> str:
        members = "".join(
            f"<member>{self._member(item)}</member>" for item in self._topic.subscriptions.values()
        )
        return f"<Subscriptions>{members}</Subscriptions>"

    def _list_by_topic(self, call: _Call) -> str:
        self._check_topic(call.parameters)
        return self._list(call)

    def _list_topics(self, _call: _Call) -> str:
        return f"<Topics><member>{_tag('TopicArn', self._topic.arn)}</member></Topics>"

    def _get_subscription_attributes(self, call: _Call) -> str:
        subscription = self._subscription(call.parameters)
        attributes = subscription.attributes
        pending = subscription.state is SubscriptionState.PENDING
        values = {
            "SubscriptionArn": subscription.arn,
            "TopicArn": subscription.topic_arn,
            "Owner": self._settings.account_id,
            "Protocol": subscription.protocol,
            "Endpoint": subscription.endpoint,
            "PendingConfirmation": str(pending).lower(),
            "ConfirmationWasAuthenticated": str(subscription.authenticated_unsubscribe).lower(),
            "RawMessageDelivery": str(attributes.raw).lower(),
            "DeliveryPolicy": attributes.delivery_policy_text,
            "RedrivePolicy": attributes.redrive_policy_text,
        }
        return _map(values)

    def _set_subscription_attributes(self, call: _Call) -> str:
        subscription = self._subscription(call.parameters)
        subscription.attributes = read_attribute(
            subscription.attributes,
            _required(call.parameters, "AttributeName"),
            call.parameters.get("AttributeValue", ""),
        )
        return ""

    def _get_topic_attributes(self, call: _Call) -> str:
        self._check_topic(call.parameters)
        versions = self._topic.versions.versions
        confirmed = len(self._topic.confirmed)
        return _map(
            {
                "TopicArn": self._topic.arn,
                "Owner": self._settings.account_id,
                "SubscriptionsConfirmed": str(confirmed),
                "SubscriptionsPending": str(len(self._topic.subscriptions) - confirmed),
                "SignatureVersion": "2" if versions is SignatureVersions.V2 else "1",
            }
        )

    def _set_topic_attributes(self, call: _Call) -> str:
        self._check_topic(call.parameters)
        name, value = (
            _required(call.parameters, "AttributeName"),
            call.parameters.get("AttributeValue", ""),
        )
        if name != "SignatureVersion":
            raise invalid_parameter(f"AttributeName: {name} is not available")
        if value not in ("1", "2"):
            raise invalid_parameter("SignatureVersion: must be 1 or 2")
        self._topic.versions.versions = SignatureVersions(value)
        return ""

    def _check_topic(self, parameters: Parameters) -> None:
        if _required(parameters, "TopicArn") != self._topic.arn:
            raise topic_not_found()

    def _subscription(self, parameters: Parameters) -> Subscription:
        found = self._topic.subscriptions.get(_required(parameters, "SubscriptionArn"))
        if found is None:
            raise subscription_not_found()
        return found

    def _member(self, subscription: Subscription) -> str:
        pending = subscription.state is SubscriptionState.PENDING
        return (
            _tag("SubscriptionArn", "PendingConfirmation" if pending else subscription.arn)
            + _tag("Owner", self._settings.account_id)
            + _tag("Protocol", subscription.protocol)
            + _tag("Endpoint", subscription.endpoint)
            + _tag("TopicArn", subscription.topic_arn)
        )


def _check_endpoint(protocol: str, endpoint: str) -> None:
    if protocol not in ("http", "https", "sqs"):
        raise invalid_parameter(f"Does not support this protocol string: {protocol}")
    if protocol == "sqs":
        if not _QUEUE_ARN.fullmatch(endpoint):
            raise invalid_parameter("SQS endpoint ARN")
    elif not endpoint.startswith(f"{protocol}://"):
        raise invalid_parameter("Endpoint must match the specified protocol")


def _required(parameters: Parameters, name: str) -> str:
    value = parameters.get(name)
    if not value:
        raise invalid_parameter(f"{name} is missing")
    return value


def _attributes(parameters: Parameters) -> list[tuple[str, str]]:
    return [
        (value, parameters.get(f"Attributes.entry.{match[1]}.value", ""))
        for name, value in parameters.items()
        if (match := _ENTRY.fullmatch(name))
    ]


def _authorization_error(message: str) -> RefusedError:
    return RefusedError(code="AuthorizationError", status=403, message=message)


def _tag(name: str, value: str) -> str:
    return f"<{name}>{escape(value)}</{name}>"


def _map(values: dict[str, str | None]) -> str:
    entries = "".join(
        f"<entry>{_tag('key', key)}{_tag('value', value)}</entry>"
        for key, value in values.items()
        if value is not None
    )
    return f"<Attributes>{entries}</Attributes>"


def _success(action: str, result: str, request_id: str) -> str:
    return (
        f'<{action}Response xmlns="{_NAMESPACE}"><{action}Result>{result}</{action}Result>'
        f"<ResponseMetadata>{_tag('RequestId', request_id)}</ResponseMetadata></{action}Response>"
    )


def _error(error: RefusedError, request_id: str) -> str:
    details = _tag("Type", "Sender") + _tag("Code", error.code) + _tag("Message", error.message)
    return (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error>{details}</Error>'
        f"{_tag('RequestId', request_id)}</ErrorResponse>"
    )


def _xml(status: int, text: str, request_id: str) -> web.Response:
    return web.Response(
        status=status,
        text=text,
        content_type="text/xml",
        headers={"x-amzn-RequestId": request_id},
    )
