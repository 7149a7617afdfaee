"""The attributes of a queue, read and refused as SQS does it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from streams.simulator.refusals import RefusedError
from streams.simulator.sqs_errors import sqs_error

MAX_VISIBILITY_S = 43_200
MAX_WAIT_S = 20
MAX_MESSAGE_BYTES = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """Where a message goes that was received `most` times and never deleted."""

    target_arn: str
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAttributes:
    """What the owner of a queue may set; times in seconds, sizes in bytes."""

    visibility_s: int = 30
    wait_s: int = 0
    delay_s: int = 0
    retention_s: int = 345_600
    max_bytes: int = MAX_MESSAGE_BYTES
    redrive: Redrive | None = None
    texts: tuple[tuple[str, str], ...] = ()
    """Policies as they were given: kept and shown, never enforced."""

    def as_json(self) -> dict[str, str]:
        numbers = {name: str(getattr(self, field)) for name, (field, _, _) in _NUMBERS.items()}
        if self.redrive is not None:
            policy = {
                "deadLetterTargetArn": self.redrive.target_arn,
                "maxReceiveCount": self.redrive.most,
            }
            numbers["RedrivePolicy"] = orjson.dumps(policy).decode()
        return numbers | dict(self.texts)


_NUMBERS = {
    "VisibilityTimeout": ("visibility_s", 0, MAX_VISIBILITY_S),
    "ReceiveMessageWaitTimeSeconds": ("wait_s", 0, MAX_WAIT_S),
    "DelaySeconds": ("delay_s", 0, 900),
    "MessageRetentionPeriod": ("retention_s", 60, 1_209_600),
    "MaximumMessageSize": ("max_bytes", 1024, MAX_MESSAGE_BYTES),
}
_TEXTS = ("Policy", "RedriveAllowPolicy")
_DERIVED = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
)
READABLE = (*_NUMBERS, *_TEXTS, *_DERIVED, "RedrivePolicy")


def changed(attributes: QueueAttributes, values: Mapping[str, Any]) -> QueueAttributes:
    """The attributes with these set; one that is not simulated is refused by name."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise _invalid_value(name)
        if name in _NUMBERS:
            attributes = _number(attributes, name, value)
        elif name == "RedrivePolicy":
            attributes = replace(attributes, redrive=_redrive(value) if value else None)
        elif name in _TEXTS:
            texts = {**dict(attributes.texts), name: value}
            attributes = replace(attributes, texts=tuple(texts.items()))
        else:
            raise sqs_error("InvalidAttributeName", f"Unknown Attribute {name}.")
    return attributes


def _number(attributes: QueueAttributes, name: str, value: str) -> QueueAttributes:
    field, least, most = _NUMBERS[name]
    if not value.isdecimal() or not least <= int(value) <= most:
        raise _invalid_value(name)
    change: dict[str, Any] = {field: int(value)}
    return replace(attributes, **change)


def _redrive(value: str) -> Redrive:
    try:
        policy = orjson.loads(value)
        target, most = policy["deadLetterTargetArn"], int(policy["maxReceiveCount"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise _invalid_value("RedrivePolicy") from error
    if not isinstance(target, str) or not target.startswith("arn:") or not 1 <= most <= 1000:
        raise _invalid_value("RedrivePolicy")
    return Redrive(target_arn=target, most=most)


def _invalid_value(name: str) -> RefusedError:
    return sqs_error("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
