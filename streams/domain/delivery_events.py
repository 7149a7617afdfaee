"""The public event of mail.delivery-events: a CloudEvent 1.0 in structured JSON, one a recipient.

SQL function life_cycle_event writes the same shape for suppressed, failed, expired and cancelled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NewType
from uuid import UUID

import orjson

from streams.domain.addresses import RecipientKey
from streams.domain.errors import BadMessage

EventId = NewType("EventId", str)

TYPE_PREFIX: Final = "mailstreams.email."
PROVIDER_SOURCE: Final = "/mailstreams/ses"


class EventType(StrEnum):
    """What happened. Why it happened stands in other fields."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    DELAYED = "delayed"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    REJECTED = "rejected"
    RENDERING_FAILED = "rendering-failed"
    OPENED = "opened"
    CLICKED = "clicked"
    UNSUBSCRIBED = "unsubscribed"
    SUPPRESSED = "suppressed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    @property
    def is_life_cycle(self) -> bool:
        """Told by ourselves about the row, not by the provider about the recipient."""
        return self in _LIFE_CYCLE


_LIFE_CYCLE: Final = frozenset(
    (EventType.SUPPRESSED, EventType.FAILED, EventType.EXPIRED, EventType.CANCELLED)
)


class BounceType(StrEnum):
    """How final a bounce is."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    UNDETERMINED = "undetermined"


class BounceReason(StrEnum):
    """Why it bounced."""

    MAILBOX_UNKNOWN = "mailbox-unknown"
    MAILBOX_FULL = "mailbox-full"
    MESSAGE_TOO_LARGE = "message-too-large"
    CONTENT_REFUSED = "content-refused"
    REPUTATION = "reputation"
    POLICY = "policy"
    AUTO_REPLY = "auto-reply"
    SUPPRESSED_BY_PROVIDER = "suppressed-by-provider"
    DNS = "dns"
    TIMEOUT = "timeout"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounce:
    """The bounce in our words, with the provider's beside them; diagnostic is redacted."""

    type: BounceType
    reason: BounceReason
    provider_type: str | None = None
    provider_subtype: str | None = None
    status: str | None = None
    diagnostic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """The complaint as the mailbox provider labelled it: abuse, not-spam, ... or None."""

    type: str | None = None
    subtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryEvent:
    """One fact about one message and one recipient. id follows from the content: the same fact, the same id."""

    id: EventId
    type: EventType
    time: datetime
    recipient_key: RecipientKey
    tenant: str | None = None
    outbox_id: UUID | None = None
    attempt_id: UUID | None = None
    provider_message_id: str | None = None
    bounce: Bounce | None = None
    complaint: Complaint | None = None
    reason: str | None = None
    source: str = PROVIDER_SOURCE
    raw: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.time.tzinfo is None:
            raise ValueError("the time of an event has a time zone")


def encode(event: DeliveryEvent) -> bytes:
    """The record's value."""
    data = {
        "tenant": event.tenant,
        "outbox_id": event.outbox_id,
        "recipient_key": event.recipient_key,
        "attempt_id": event.attempt_id,
        "provider_message_id": event.provider_message_id,
        "bounce": event.bounce,
        "complaint": event.complaint,
        "reason": event.reason,
        "raw": event.raw,
    }
    return orjson.dumps(
        {
            "specversion": "1.0",
            "id": event.id,
            "source": event.source,
            "type": TYPE_PREFIX + event.type,
            "time": event.time.astimezone(UTC).isoformat(timespec="milliseconds"),
            "subject": event.recipient_key,
            "datacontenttype": "application/json",
            "data": data,
        },
        option=orjson.OPT_UTC_Z,
    )


def decode(value: bytes) -> DeliveryEvent:
    """The event of a record's value; unknown fields are ignored. BadMessage says what is wrong."""
    try:
        body = orjson.loads(value)
        data = body["data"]
        return DeliveryEvent(
            id=EventId(_text(body["id"], "id")),
            type=EventType(_text(body["type"], "type").removeprefix(TYPE_PREFIX)),
            time=datetime.fromisoformat(_text(body["time"], "time")),
            recipient_key=RecipientKey(_text(data["recipient_key"], "recipient_key")),
            tenant=data.get("tenant"),
            outbox_id=_uuid(data.get("outbox_id")),
            attempt_id=_uuid(data.get("attempt_id")),
            provider_message_id=data.get("provider_message_id"),
            bounce=_bounce(data.get("bounce")),
            complaint=_complaint(data.get("complaint")),
            reason=data.get("reason"),
            source=body["source"],
            raw=data.get("raw"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadMessage(f"not a delivery event: {type(error).__name__}: {error}") from error


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{field} is not a text")
    return value


def _uuid(value: str | None) -> UUID | None:
    return None if value is None else UUID(value)


def _bounce(value: Mapping[str, Any] | None) -> Bounce | None:
    if value is None:
        return None
    return Bounce(
        type=BounceType(value["type"]),
        reason=BounceReason(value["reason"]),
        provider_type=value.get("provider_type"),
        provider_subtype=value.get("provider_subtype"),
        status=value.get("status"),
        diagnostic=value.get("diagnostic"),
    )


def _complaint(value: Mapping[str, Any] | None) -> Complaint | None:
    if value is None:
        return None
    return Complaint(type=value.get("type"), subtype=value.get("subtype"))
