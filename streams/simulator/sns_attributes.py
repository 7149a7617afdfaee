"""The attributes of a Subscribe call, read and refused as SNS does it."""

from dataclasses import replace
from typing import Any

import orjson

from streams.simulator.retry_policy import BadPolicyError, RetryPolicy, read_healthy_policy
from streams.simulator.sns_topic import SubscriptionAttributes, invalid_parameter


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
        return _delivery_policy(attributes, value)
    raise invalid_parameter(f"AttributeName: {name} is not available")


def _redrive(attributes: SubscriptionAttributes, value: str) -> SubscriptionAttributes:
    queue = _json("RedrivePolicy", value).get("deadLetterTargetArn") if value else None
    if value and (not isinstance(queue, str) or not queue.startswith("arn:aws:sqs:")):
        raise invalid_parameter("RedrivePolicy: deadLetterTargetArn must be the ARN of a queue")
    return replace(attributes, redrive_policy_text=value or None, dead_letter_queue=queue)


def _delivery_policy(attributes: SubscriptionAttributes, value: str) -> SubscriptionAttributes:
    policy = _json("DeliveryPolicy", value) if value else {}
    unknown = set(policy) - {"healthyRetryPolicy", "requestPolicy"}
    if unknown:
        raise invalid_parameter(f"DeliveryPolicy: {min(unknown)} is not available")
    healthy = policy.get("healthyRetryPolicy")
    if healthy is not None and not isinstance(healthy, dict):
        raise invalid_parameter("DeliveryPolicy: healthyRetryPolicy must be an object")
    try:
        retry_policy = RetryPolicy() if healthy is None else read_healthy_policy(healthy)
    except BadPolicyError as error:
        raise invalid_parameter(f"DeliveryPolicy: {error}") from error
    request = policy.get("requestPolicy") or {}
    default = SubscriptionAttributes().content_type
    content_type = request.get("headerContentType", default) if isinstance(request, dict) else None
    if not isinstance(content_type, str) or not content_type.isprintable():
        raise invalid_parameter("DeliveryPolicy: requestPolicy.headerContentType must be a string")
    return replace(
        attributes,
        retry_policy=retry_policy,
        delivery_policy_text=value or None,
        content_type=content_type,
    )


def _json(name: str, value: str) -> dict[str, Any]:
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise invalid_parameter(f"{name}: must be JSON") from error
    if not isinstance(document, dict):
        raise invalid_parameter(f"{name}: must be a JSON object")
    return document
