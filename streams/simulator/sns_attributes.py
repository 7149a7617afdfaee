"""The attributes of subscriptions and topics, read and refused as SNS does it."""

from dataclasses import replace
from typing import Any

import orjson

from streams.simulator.regions import QUEUE_ARN
from streams.simulator.retry_policy import BadPolicyError, RetryPolicy, read_healthy_policy
from streams.simulator.sns_parameters import invalid_parameter
from streams.simulator.sns_topic import SubscriptionAttributes, TopicAttributes

_KEPT = ("DisplayName", "Policy", "TracingConfig")


def read_attribute(
    attributes: SubscriptionAttributes, name: str, value: str
) -> SubscriptionAttributes:
    """The attributes with one of them set; what is not simulated is refused by name."""
    if name == "RawMessageDelivery":
        if value.lower() not in ("true", "false"):
            raise invalid_parameter("RawMessageDelivery: must be true or false")
        return replace(attributes, raw=value.lower() == "true")
    if name == "RedrivePolicy":
        return _redrive(attributes, value)
    if name == "DeliveryPolicy":
        return _subscription_policy(attributes, value)
    raise invalid_parameter(f"AttributeName: {name} is not available")


def read_topic_attribute(attributes: TopicAttributes, name: str, value: str) -> TopicAttributes:
    if name == "DeliveryPolicy":
        return _topic_policy(attributes, value)
    if name in _KEPT:
        return replace(attributes, texts=tuple({**dict(attributes.texts), name: value}.items()))
    raise invalid_parameter(f"AttributeName: {name} is not available")


def effective_policy(retry: RetryPolicy, receives_per_second: int | None) -> str:
    """What SNS shows as EffectiveDeliveryPolicy."""
    policy: dict[str, Any] = {"healthyRetryPolicy": retry.as_json(), "sicklyRetryPolicy": None}
    throttle = receives_per_second and {"maxReceivesPerSecond": receives_per_second}
    return orjson.dumps({**policy, "throttlePolicy": throttle, "guaranteed": False}).decode()


def _redrive(attributes: SubscriptionAttributes, value: str) -> SubscriptionAttributes:
    queue = _json("RedrivePolicy", value).get("deadLetterTargetArn") if value else None
    if value and (not isinstance(queue, str) or not QUEUE_ARN.fullmatch(queue)):
        raise invalid_parameter("RedrivePolicy: deadLetterTargetArn must be the ARN of a queue")
    return replace(attributes, redrive_policy_text=value or None, dead_letter_queue=queue)


def _subscription_policy(attributes: SubscriptionAttributes, value: str) -> SubscriptionAttributes:
    policy = _json("DeliveryPolicy", value) if value else {}
    _refuse_unknown(
        policy, "healthyRetryPolicy", "throttlePolicy", "requestPolicy", "sicklyRetryPolicy"
    )
    return replace(
        attributes,
        retry_policy=_retry_policy(policy.get("healthyRetryPolicy")),
        receives_per_second=_throttle(policy.get("throttlePolicy")),
        content_type=_content_type(policy.get("requestPolicy")),
        delivery_policy_text=value or None,
    )


def _topic_policy(attributes: TopicAttributes, value: str) -> TopicAttributes:
    document = _json("DeliveryPolicy", value) if value else {}
    _refuse_unknown(document, "http")
    policy = _object(document.get("http"), "http") or {}
    _refuse_unknown(
        policy,
        "defaultHealthyRetryPolicy",
        "disableSubscriptionOverrides",
        "defaultThrottlePolicy",
        "defaultRequestPolicy",
    )
    disabled = policy.get("disableSubscriptionOverrides", False)
    if not isinstance(disabled, bool):
        raise invalid_parameter("DeliveryPolicy: disableSubscriptionOverrides must be a boolean")
    plain = TopicAttributes()
    return replace(
        attributes,
        retry_policy=_retry_policy(policy.get("defaultHealthyRetryPolicy")) or RetryPolicy(),
        receives_per_second=_throttle(policy.get("defaultThrottlePolicy")),
        disable_overrides=disabled,
        content_type=_content_type(policy.get("defaultRequestPolicy")) or plain.content_type,
        delivery_policy_text=value or None,
    )


def _retry_policy(value: Any) -> RetryPolicy | None:
    healthy = _object(value, "healthyRetryPolicy")
    try:
        return None if healthy is None else read_healthy_policy(healthy)
    except BadPolicyError as error:
        raise invalid_parameter(f"DeliveryPolicy: {error}") from error


def _throttle(value: Any) -> int | None:
    throttle = _object(value, "throttlePolicy") or {}
    _refuse_unknown(throttle, "maxReceivesPerSecond")
    number = throttle.get("maxReceivesPerSecond")
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise invalid_parameter("DeliveryPolicy: maxReceivesPerSecond must be at least 1")
    return number


def _content_type(value: Any) -> str | None:
    request = _object(value, "requestPolicy") or {}
    content_type = request.get("headerContentType")
    if content_type is None:
        return None
    if not isinstance(content_type, str) or not content_type.isprintable():
        raise invalid_parameter("DeliveryPolicy: requestPolicy.headerContentType must be a string")
    return content_type


def _refuse_unknown(policy: dict[str, Any], *known: str) -> None:
    unknown = set(policy) - set(known)
    if unknown:
        raise invalid_parameter(f"DeliveryPolicy: {min(unknown)} is not available")


def _object(value: Any, name: str) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    raise invalid_parameter(f"DeliveryPolicy: {name} must be an object")


def _json(name: str, value: str) -> dict[str, Any]:
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise invalid_parameter(f"{name}: must be JSON") from error
    if not isinstance(document, dict):
        raise invalid_parameter(f"{name}: must be a JSON object")
    return document
