"""The public event of mail.delivery-events: a CloudEvent 1.0 in structured JSON, one a recipient.

SQL function life_cycle_event writes the same shape for suppressed, failed, expired and cancelled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NewType, TypeVar
from uuid import UUID

import orjson

from streams.domain.addresses import RecipientKey
from streams.domain.errors import BadMessage

EventId = NewType("EventId", str)
_Word = TypeVar("_Word", bound=StrEnum)

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
    """The event of a record's value; unknown fields are ignored. BadMessage names the field that is wrong, never its value."""
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise BadMessage("not a delivery event: the value is not JSON") from error
    envelope, data = _Fields(body, ""), _Fields(_member(body, "data"), "data.")
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
        bounce=None if bounce is None else _bounce(bounce),
        complaint=None
        if complaint is None
        else Complaint(type=complaint.optional("type"), subtype=complaint.optional("subtype")),
        reason=data.optional("reason"),
        source=envelope.text("source"),
        raw=_member(body["data"], "raw"),
    )


def _bounce(fields: "_Fields") -> Bounce:
    return Bounce(
        type=fields.word("type", BounceType),
        reason=fields.word("reason", BounceReason),
        provider_type=fields.optional("provider_type"),
        provider_subtype=fields.optional("provider_subtype"),
        status=fields.optional("status"),
        diagnostic=fields.optional("diagnostic"),
    )


def _member(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


class _Fields:
    """The members of one JSON object; whatever is not as it must be raises BadMessage."""

    __slots__ = ("_body", "_where")

    def __init__(self, body: Any, where: str) -> None:
        if not isinstance(body, dict):
            raise BadMessage(
                f"not a delivery event: {where.rstrip('.') or 'the value'} is not an object"
            )
        self._body: dict[str, Any] = body
        self._where = where

    def _wrong(self, name: str, what: str) -> BadMessage:
        return BadMessage(f"not a delivery event: {self._where}{name} is not {what}")

    def text(self, name: str) -> str:
        value = self._body.get(name)
        if not isinstance(value, str) or not value:
            raise self._wrong(name, "a text")
        return value

    def optional(self, name: str) -> str | None:
        value = self._body.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text or null")
        return value

    def word(self, name: str, words: type[_Word], *, prefix: str = "") -> _Word:
        try:
            return words(self.text(name).removeprefix(prefix))
        except ValueError:
            raise self._wrong(name, f"one of the words of {words.__name__}") from None

    def time(self, name: str) -> datetime:
        try:
            value = datetime.fromisoformat(self.text(name))
        except ValueError:
            raise self._wrong(name, "a time") from None
        if value.tzinfo is None:
            raise self._wrong(name, "a time with a zone")
        return value

    def uuid(self, name: str) -> UUID | None:
        value = self.optional(name)
        try:
            return None if value is None else UUID(value)
        except ValueError:
            raise self._wrong(name, "a UUID or null") from None

    def fields(self, name: str) -> "_Fields | None":
        value = self._body.get(name)
        return None if value is None else _Fields(value, f"{self._where}{name}.")
