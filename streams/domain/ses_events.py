"""A notification of Amazon SES as delivery events, one a recipient: identity notifications and event publishing alike."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_classes import (
    classify_bounce,
    complaint_type,
    delay_reason,
    is_suppression,
    smtp_status,
)
from streams.domain.delivery_events import (
    Bounce,
    BounceReason,
    BounceType,
    Complaint,
    DeliveryEvent,
    EventId,
    EventType,
)
from streams.domain.errors import BadMessage
from streams.domain.mailboxes import bare_address, is_mailbox_simulator
from streams.domain.redaction import Redactor
from streams.domain.ses_recipients import Named, destinations, named_recipients
from streams.domain.timestamps import parse_timestamp
from streams.domain.wire_json import loads


class NoticeKind(StrEnum):
    """What a notification is."""

    EVENTS = "events"
    SETUP = "setup"
    IGNORED = "ignored"
    INBOUND = "inbound"
    UNKNOWN_TYPE = "unknown-type"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notification read. keep_raw says why the notification has to be kept as found too: we could not read all of it."""

    kind: NoticeKind
    events: tuple[DeliveryEvent, ...] = ()
    keep_raw: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Where a kind of notification keeps its facts. recipients None: it is about every destination of the mail. classified:
    there is more to tell than that it happened."""

    type: EventType
    detail: str
    recipients: str | None = None
    once: bool = False
    classified: bool = False


_SHAPES: Final = {
    "send": Shape(type=EventType.ACCEPTED, detail="send", once=True),
    "delivery": Shape(type=EventType.DELIVERED, detail="delivery", recipients="recipients"),
    "deliverydelay": Shape(
        type=EventType.DELAYED,
        detail="deliveryDelay",
        recipients="delayedRecipients",
        classified=True,
    ),
    "bounce": Shape(
        type=EventType.BOUNCED, detail="bounce", recipients="bouncedRecipients", classified=True
    ),
    "complaint": Shape(
        type=EventType.COMPLAINED,
        detail="complaint",
        recipients="complainedRecipients",
        classified=True,
    ),
    "reject": Shape(type=EventType.REJECTED, detail="reject", once=True, classified=True),
    "renderingfailure": Shape(type=EventType.RENDERING_FAILED, detail="failure", once=True),
    "open": Shape(type=EventType.OPENED, detail="open"),
    "click": Shape(type=EventType.CLICKED, detail="click"),
    "subscription": Shape(type=EventType.UNSUBSCRIBED, detail="subscription"),
}
# SES takes 50 recipients a message. Each event of a complaint names all of them, so that the work grows with the square.
MAX_RECIPIENTS: Final = 250
_AHEAD: Final = timedelta(hours=1)
_SETUP_SENTENCE: Final = "Successfully validated SNS topic for Amazon SES event publishing."
_SETUP_TYPE: Final = "amazonsnssubscriptionsucceeded"
_SEPARATORS: Final = re.compile(r"[\s_-]")
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_TENANT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DOMAIN: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def read_notice(message: str, *, salt: bytes, received: datetime) -> Notice:
    """The events of the text in an envelope's Message. `received` is the time of facts that carry none, or one to come."""
    if message.strip() == _SETUP_SENTENCE:
        return Notice(kind=NoticeKind.SETUP)
    try:
        body = loads(message)
    except BadMessage as error:
        return _unreadable(str(error))
    if not isinstance(body, dict):
        return _unreadable("not a JSON object")
    word = _type_word(body)
    if word == _SETUP_TYPE:
        return Notice(kind=NoticeKind.SETUP)
    if word == "received":
        return Notice(kind=NoticeKind.INBOUND)
    shape = _SHAPES.get(word)
    if shape is None:
        return Notice(kind=NoticeKind.UNKNOWN_TYPE, keep_raw="unknown type of notification")
    if shape.type is EventType.UNSUBSCRIBED and not _is_opt_out(_mapping(body.get(shape.detail))):
        return Notice(kind=NoticeKind.IGNORED)
    return _Reader(body, shape, salt, received).notice()


class _Reader:
    """Reads one notification of a known shape, whose body it takes apart."""

    def __init__(self, body: dict[str, Any], shape: Shape, salt: bytes, received: datetime) -> None:
        self._shape = shape
        self._mail = _mapping(body.pop("mail", None))
        self._tags = _mapping(self._mail.get("tags"))
        self._detail = _mapping(body.pop(shape.detail, None))
        self._rest = body
        self._destinations = destinations(self._mail)
        self._named, self._lost = named_recipients(
            self._mail, self._detail, shape.recipients, self._destinations
        )
        self._redactor = Redactor(salt, {*self._destinations, *(n.address for n in self._named)})
        self._message_id = _text(self._mail.get("messageId"))
        told = (self._detail.get("timestamp"), self._mail.get("timestamp"))
        times = [time for time in map(parse_timestamp, told) if time is not None]
        self._fact_time = times[0] if times else None
        # A time to come would outlast every lift, and end every streak of soft bounces.
        latest = received + _AHEAD
        self._time = next((time for time in times if time <= latest), received)

    def notice(self) -> Notice:
        if not self._named:
            return _unreadable("no recipient that could be told")
        if len(self._named) > MAX_RECIPIENTS:
            return _unreadable("more recipients than a message can have")
        if self._message_id is None and self._fact_time is None and self._feedback_id is None:
            return _unreadable("neither message id, nor feedback id, nor time")
        return Notice(
            kind=NoticeKind.EVENTS,
            events=self._events(),
            keep_raw="a recipient that could not be told" if self._lost else None,
            traceparent=_matching(_TRACEPARENT, self._tag("traceparent")),
        )

    def _events(self) -> tuple[DeliveryEvent, ...]:
        """One an id: of several entries about one recipient the first in the order of _weight counts."""
        self._common = self._redacted_common()
        if len(self._named) == 1:
            return (self._event(self._named[0]),)
        found: dict[EventId, DeliveryEvent] = {}
        for event in sorted(map(self._event, self._named), key=_weight):
            found.setdefault(event.id, event)
        return tuple(found.values())

    def _event(self, named: Named) -> DeliveryEvent:
        key = self._redactor.key(named.address)
        bounce, complaint, reason = self._classified(named.entry)
        kind = self._shape.type if bounce is None else EventType.BOUNCED
        return DeliveryEvent(
            id=self._event_id(kind, key),
            type=kind,
            time=self._time,
            recipient_key=key,
            tenant=_matching(_TENANT, self._tag("tenant")),
            outbox_id=_uuid(self._tag("outbox")),
            attempt_id=_uuid(self._tag("attempt")),
            provider_message_id=self._message_id and self._redactor.text(self._message_id, 256),
            sender_domain=self._sender_domain,
            bounce=bounce,
            complaint=complaint,
            reason=reason,
            raw=self._raw(named, key),
        )

    def _classified(
        self, entry: Mapping[str, Any]
    ) -> tuple[Bounce | None, Complaint | None, str | None]:
        if not self._shape.classified:
            return None, None, None
        match self._shape.type:
            case EventType.BOUNCED:
                return self._bounce(entry), None, None
            case EventType.COMPLAINED if is_suppression(
                _text(self._detail.get("complaintSubType"))
            ):
                return self._suppressed_by_complaint(), None, None
            case EventType.COMPLAINED:
                return None, self._complaint(), None
            case EventType.DELAYED:
                return None, None, delay_reason(_text(self._detail.get("delayType")))
            case EventType.REJECTED:
                return None, None, BounceReason.CONTENT_REFUSED
            case _:
                return None, None, None

    def _bounce(self, entry: Mapping[str, Any]) -> Bounce:
        label, subtype = (_text(self._detail.get(n)) for n in ("bounceType", "bounceSubType"))
        status, diagnostic = _text(entry.get("status")), _text(entry.get("diagnosticCode"))
        kind, reason = classify_bounce(
            label=label, subtype=subtype, status=status, diagnostic=diagnostic
        )
        code = smtp_status(status, diagnostic)
        return Bounce(
            type=kind,
            reason=reason,
            provider_type=label and self._redactor.text(label, 64),
            provider_subtype=subtype and self._redactor.text(subtype, 64),
            status=code and ".".join(map(str, code)),
            diagnostic=diagnostic and self._redactor.prose(diagnostic),
        )

    def _suppressed_by_complaint(self) -> Bounce:
        """Nothing was sent: a refusal of the provider's list, no new complaint."""
        subtype = _text(self._detail.get("complaintSubType")) or ""
        return Bounce(
            type=BounceType.PERMANENT,
            reason=BounceReason.SUPPRESSED_BY_PROVIDER,
            provider_type="Complaint",
            provider_subtype=self._redactor.text(subtype, 64),
        )

    def _complaint(self) -> Complaint:
        subtype = _text(self._detail.get("complaintSubType"))
        return Complaint(
            type=complaint_type(_text(self._detail.get("complaintFeedbackType"))),
            subtype=subtype and self._redactor.text(subtype, 64),
        )

    @property
    def _feedback_id(self) -> str | None:
        return _text(self._detail.get("feedbackId"))

    def _event_id(self, kind: EventType, key: RecipientKey) -> EventId:
        """Of what the fact is, not of how it came: one fact in two shapes or under two SNS ids has one id."""
        if self._shape.once:
            which = ""
        elif self._feedback_id is not None:
            which = self._feedback_id
        else:
            which = "" if self._fact_time is None else self._fact_time.isoformat()
        # A scanner follows several links within a millisecond.
        link = _text(self._detail.get("link")) if kind is EventType.CLICKED else None
        parts = (self._message_id or "", kind, key, which, link or "")
        content = "\x00".join(parts).encode(errors="surrogatepass")
        return EventId(hashlib.sha256(content).hexdigest()[:32])

    @property
    def _sender_domain(self) -> str | None:
        """The domain that the mail was sent from, by SES's own tag, else by the address."""
        domain = self._tag("ses:from-domain")
        if domain is None:
            sender = bare_address(_text(self._mail.get("source")) or "")
            domain = sender and sender.rpartition("@")[2]
        return _matching(_DOMAIN, domain and domain.lower())

    def _tag(self, name: str) -> str | None:
        value = self._tags.get(name)
        return _text(value[0] if isinstance(value, list) and value else value)

    def _redacted_common(self) -> dict[str, Any]:
        """The payload without what differs between recipients; what matters most first, since the size is bounded."""
        shape = self._shape
        if shape.recipients is not None:
            self._detail.pop(shape.recipients, None)
        self._mail.pop("destination", None)
        detail, mail, rest = self._redactor.mappings(self._detail, self._mail, self._rest)
        keys = [self._redactor.key(address) for address in self._destinations[:64]]
        common = {shape.detail: detail, "mail": {"destination": keys, **mail}, **rest}
        if any(is_mailbox_simulator(n.address) for n in self._named):
            common["mailbox_simulator"] = True
        return common

    def _raw(self, named: Named, key: RecipientKey) -> Mapping[str, Any]:
        """The redacted payload with this recipient's entry; a complaint names all, since SES only guesses who complained."""
        shape, common = self._shape, self._common
        if shape.recipients is None:
            return common
        if shape.type is EventType.DELIVERED:
            own: list[Any] = [key]
        elif shape.type is EventType.COMPLAINED:
            own = [{"emailAddress": self._redactor.key(n.address)} for n in self._named]
        else:
            entry = {n: v for n, v in named.entry.items() if n != "emailAddress"}
            own = [{"emailAddress": key, **(self._redactor.value(entry) or {})}]
        detail = {**(common[shape.detail] or {}), shape.recipients: own}
        return {**common, shape.detail: detail}


def _unreadable(why: str) -> Notice:
    return Notice(kind=NoticeKind.UNREADABLE, keep_raw=why)


def _type_word(body: Mapping[str, Any]) -> str:
    name = _text(body.get("eventType")) or _text(body.get("notificationType")) or ""
    return (name if name.isalpha() else _SEPARATORS.sub("", name[:64])).lower()


def _is_opt_out(subscription: Mapping[str, Any]) -> bool:
    """Leaves everything, or a topic that the contact was not out of before."""
    new, old = (_mapping(subscription.get(f"{a}TopicPreferences")) for a in ("new", "old"))
    if new.get("unsubscribeAll") is True:
        return True
    return bool(_topics_left(new) - _topics_left(old))


def _topics_left(preferences: Mapping[str, Any]) -> set[str]:
    topics = preferences.get("topicSubscriptionStatus")
    return {
        str(topic.get("topicName"))
        for topic in (topics if isinstance(topics, list) else ())
        if isinstance(topic, dict) and topic.get("subscriptionStatus") == "OptOut"
    }


def _weight(event: DeliveryEvent) -> tuple[int, str, str]:
    """Permanent before undetermined before transient; the rest only makes the order total."""
    if event.bounce is None:
        return 3, "", ""
    order = (BounceType.PERMANENT, BounceType.UNDETERMINED, BounceType.TRANSIENT)
    return order.index(event.bounce.type), event.bounce.status or "", event.bounce.diagnostic or ""


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _uuid(text: str | None) -> UUID | None:
    return UUID(text) if text is not None and _UUID.fullmatch(text) else None


def _matching(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and pattern.fullmatch(text) else None
