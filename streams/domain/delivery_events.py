"""The public event of mail.delivery-events: a CloudEvent 1.0 in structured JSON, one a recipient.

SQL function life_cycle_event writes the same shape for suppressed, failed, expired and cancelled. schemas/delivery-events
is the public form of this file, and a test holds the two together.
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
from streams.domain.json_fields import Fields

EventId = NewType("EventId", str)

TYPE_PREFIX: Final = "mailstreams.email."
PROVIDER_SOURCE: Final = "/mailstreams/ses"
LIFE_CYCLE_SOURCE: Final = "/mailstreams/outbox"
# The schema of `data`; another major version has another name.
DATA_SCHEMA: Final = "urn:mailstreams:delivery-event:v1"
# What the Kafka binding of CloudEvents demands of a record in structured mode.
CONTENT_TYPE: Final = ("content-type", b"application/cloudevents+json; charset=UTF-8")


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


_TYPES: Final = frozenset(EventType)


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
    """One fact about one message and one recipient. id follows from the content: the same fact, the same id.

    sender_domain is the domain that the mail was sent from, never that of the recipient. dedup_key stands in life-cycle
    events only.
    """

    id: EventId
    type: EventType
    time: datetime
    recipient_key: RecipientKey
    tenant: str | None = None
    outbox_id: UUID | None = None
    attempt_id: UUID | None = None
    provider_message_id: str | None = None
    sender_domain: str | None = None
    dedup_key: str | None = None
    bounce: Bounce | None = None
    complaint: Complaint | None = None
    reason: str | None = None
    source: str = PROVIDER_SOURCE
    raw: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.time.tzinfo is None:
            raise ValueError("the time of an event has a time zone")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent:
    """An event of a type that this version does not know, with its prefix; body is the whole CloudEvent."""

    id: EventId
    type: str
    time: datetime
    recipient_key: RecipientKey
    body: Mapping[str, Any]


def encode(event: DeliveryEvent) -> bytes:
    """The record's value."""
    data = {
        "tenant": event.tenant,
        "outbox_id": event.outbox_id,
        "recipient_key": event.recipient_key,
        "attempt_id": event.attempt_id,
        "provider_message_id": event.provider_message_id,
        "sender_domain": event.sender_domain,
        "dedup_key": event.dedup_key,
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
            "dataschema": DATA_SCHEMA,
            "data": data,
        },
        option=orjson.OPT_UTC_Z,
    )


def decode(value: bytes) -> DeliveryEvent:
    """The event of a record's value; unknown fields are ignored. BadMessage names the field that is wrong, never its value.

    Strict about words: one that is new is refused, since the fold must not decide on what it does not understand.
    """
    return _event(_parsed(value), lenient=False)


def interpret(body: object) -> DeliveryEvent | UnknownEvent:
    """The event of parsed JSON, as a subscriber wants it: new words are no error. BadMessage as decode().

    A new type makes an UnknownEvent, a new bounce type reads as undetermined, a new bounce reason as other.
    """
    envelope = Fields(body, of="delivery event")
    name = envelope.text("type")
    if name.removeprefix(TYPE_PREFIX) in _TYPES:
        return _event(body, lenient=True)
    data = _data(envelope)
    return UnknownEvent(
        id=EventId(envelope.text("id")),
        type=name,
        time=envelope.time("time"),
        recipient_key=RecipientKey(data.text("recipient_key")),
        body=envelope.members,
    )


def _parsed(value: bytes) -> object:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise BadMessage("not a delivery event: the value is not JSON") from error


def _data(envelope: Fields) -> Fields:
    if envelope.optional("dataschema") not in (None, DATA_SCHEMA):
        raise BadMessage("not a delivery event: dataschema is that of another major version")
    return envelope.inner("data")


def _event(body: object, *, lenient: bool) -> DeliveryEvent:
    envelope = Fields(body, of="delivery event")
    data = _data(envelope)
    bounce, complaint = data.fields("bounce"), data.fields("complaint")
    return DeliveryEvent(
        id=EventId(envelope.text("id")),
        type=envelope.word("type", EventType, prefix=TYPE_PREFIX),
        time=envelope.time("time"),
        recipient_key=RecipientKey(data.text("recipient_key")),
        tenant=data.optional("tenant"),
        outbox_id=data.uuid("outbox_id"),
        attempt_id=data.uuid("attempt_id"),
        provider_message_id=data.optional("provider_message_id"),
        sender_domain=data.optional("sender_domain"),
        dedup_key=data.optional("dedup_key"),
        bounce=None if bounce is None else _bounce(bounce, lenient),
        complaint=None
        if complaint is None
        else Complaint(type=complaint.optional("type"), subtype=complaint.optional("subtype")),
        reason=data.optional("reason"),
        source=envelope.text("source"),
        raw=data.object("raw"),
    )


def _bounce(fields: Fields, lenient: bool) -> Bounce:
    return Bounce(
        type=fields.word(
            "type", BounceType, otherwise=BounceType.UNDETERMINED if lenient else None
        ),
        reason=fields.word(
            "reason", BounceReason, otherwise=BounceReason.OTHER if lenient else None
        ),
        provider_type=fields.optional("provider_type"),
        provider_subtype=fields.optional("provider_subtype"),
        status=fields.optional("status"),
        diagnostic=fields.optional("diagnostic"),
    )
