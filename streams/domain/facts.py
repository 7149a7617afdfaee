"""The facts of messages and recipients, and how two of one kind merge. Any order and any number of repetitions give the same."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_classes import NOT_SPAM
from streams.domain.bounce_rules import ANY, Suppression, by_provider
from streams.domain.delivery_events import (
    BounceReason,
    BounceType,
    DeliveryEvent,
    EventId,
    EventType,
)

# SES took the message, whatever became of it afterwards. An opt-out proves no call of ours.
PROOF_OF_ACCEPTANCE: Final = frozenset(
    (
        EventType.ACCEPTED,
        EventType.DELIVERED,
        EventType.DELAYED,
        EventType.BOUNCED,
        EventType.COMPLAINED,
        EventType.REJECTED,
        EventType.RENDERING_FAILED,
        EventType.OPENED,
        EventType.CLICKED,
    )
)
# Tenant, or "*" for messages that are not known, and recipient: the key of recipient_state.
RecipientScope = tuple[str, RecipientKey]
_SEVERITY: Final = {BounceType.PERMANENT: 0, BounceType.UNDETERMINED: 1, BounceType.TRANSIENT: 2}
_REFERENCES: Final = ("attempt_id", "outbox_id", "provider_message_id", "tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An event and the message that it belongs to, as far as that is known.

    attempt_id is what the message's own record says, else the event's tag. forgotten: the tag names an attempt that the
    database does not know. stored_unmatched: the event was kept before, without its message.
    """

    event: DeliveryEvent
    outbox_id: UUID | None = None
    tenant: str | None = None
    attempt_id: UUID | None = None
    forgotten: bool = False
    stored_unmatched: bool = False

    @property
    def scope(self) -> RecipientScope:
        """The row of recipient_state that the event counts in: the tenant's, or that of no known tenant."""
        return self.tenant or ANY, self.event.recipient_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An event that the store took: it is new, or what is known of its message is."""

    placed: Placed
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How many rows evidence has moved: from where to submitted, or as refused to pending.

    duplicates: calls that turned out to be taken beside another one of their message. contradicted: a person had settled the
    row as taken, and the call is now proven not to be.
    """

    from_ambiguous: int = 0
    from_held: int = 0
    from_pending: int = 0
    refused: int = 0
    duplicates: int = 0
    contradicted: int = 0

    def by_origin(self) -> dict[str, int]:
        """The rows by where they came from; refused: those that are tried again."""
        return {
            "ambiguous": self.from_ambiguous,
            "held": self.from_held,
            "pending": self.from_pending,
            "refused": self.refused,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedPage:
    """Kept events without a message: how many were looked at, up to when, and those whose message is known by now."""

    examined: int
    last_received: datetime | None
    events: Sequence[DeliveryEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class BounceFact:
    """One bounce; all its columns come from one event."""

    at: datetime
    event_id: EventId
    type: BounceType
    reason: BounceReason
    diagnostic: str | None

    @property
    def rank(self) -> tuple[int, datetime, EventId]:
        """The total order that chooses the bounce which is told: the lowest wins."""
        return _SEVERITY[self.type], self.at, self.event_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplaintFact:
    """One complaint; the earliest is told."""

    at: datetime
    event_id: EventId
    type: str | None

    @property
    def rank(self) -> tuple[datetime, EventId]:
        return self.at, self.event_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipientOutcome:
    """What happened to one message and recipient: the earliest time of each kind beside the bounce and the complaint."""

    outbox_id: UUID
    recipient_key: RecipientKey
    times: Mapping[EventType, datetime] = field(default_factory=dict)
    bounce: BounceFact | None = None
    complaint: ComplaintFact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipientState:
    """One tenant's recipient over all messages; tenant "*" for messages that are not known.

    The streak is that of the whole history: it is derived, never merged.
    """

    tenant: str
    recipient_key: RecipientKey
    last_delivery: datetime | None = None
    hard_bounce: datetime | None = None
    complaint: datetime | None = None
    soft_bounce_streak: int = 0
    soft_bounces_since: datetime | None = None

    @property
    def scope(self) -> RecipientScope:
        return self.tenant, self.recipient_key

    @property
    def says_something(self) -> bool:
        times = self.last_delivery, self.hard_bounce, self.complaint
        return any(at is not None for at in times) or self.soft_bounce_streak > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What events add up to, one entry a row, in the order of the rows' keys."""

    outcomes: Sequence[RecipientOutcome]
    states: Sequence[RecipientState]
    suppressions: Sequence[Suppression]


def distinct(events: Iterable[DeliveryEvent]) -> list[DeliveryEvent]:
    """One of each event and recipient. The same fact may come twice, once with its tags and once without: the fuller one stays."""
    found: dict[tuple[EventId, RecipientKey], DeliveryEvent] = {}
    for event in events:
        key = event.id, event.recipient_key
        before = found.get(key)
        if before is None or _references(event) > _references(before):
            found[key] = event
    return [found[key] for key in sorted(found)]


def outcome_of(placed: Placed) -> RecipientOutcome | None:
    """What this event alone says of its message; None if the message is unknown or nothing happened to it.

    An automatic reply is no bounce, a report of not-spam no complaint, and one that the provider answers for its own list is nobody's.
    """
    event = placed.event
    if placed.outbox_id is None or event.type.is_life_cycle:
        return None
    bounce = _bounce_fact(event)
    complaint = _complaint_fact(event)
    plain = event.type not in (EventType.BOUNCED, EventType.COMPLAINED)
    if not plain and bounce is None and complaint is None:
        return None
    return RecipientOutcome(
        outbox_id=placed.outbox_id,
        recipient_key=event.recipient_key,
        times={event.type: event.time} if plain else {},
        bounce=bounce,
        complaint=complaint,
    )


def merge_outcomes(one: RecipientOutcome | None, other: RecipientOutcome) -> RecipientOutcome:
    """Both together."""
    if one is None:
        return other
    times = dict(one.times)
    for kind, at in other.times.items():
        times[kind] = min(times.get(kind, at), at)
    bounces = [b for b in (one.bounce, other.bounce) if b is not None]
    complaints = [c for c in (one.complaint, other.complaint) if c is not None]
    return RecipientOutcome(
        outbox_id=one.outbox_id,
        recipient_key=one.recipient_key,
        times=times,
        bounce=min(bounces, key=lambda b: b.rank, default=None),
        complaint=min(complaints, key=lambda c: c.rank, default=None),
    )


def merge_states(one: RecipientState | None, other: RecipientState) -> RecipientState:
    """Both together, without the streak."""
    if one is None:
        return other
    deliveries = [d for d in (one.last_delivery, other.last_delivery) if d is not None]
    return RecipientState(
        tenant=one.tenant,
        recipient_key=one.recipient_key,
        last_delivery=max(deliveries, default=None),
        hard_bounce=_earliest(one.hard_bounce, other.hard_bounce),
        complaint=_earliest(one.complaint, other.complaint),
    )


def merge_suppressions(one: Suppression | None, other: Suppression) -> Suppression:
    """The one with the evidence that is told."""
    return other if one is None else min(one, other, key=lambda s: s.rank)


def _bounce_fact(event: DeliveryEvent) -> BounceFact | None:
    bounce = event.bounce
    if event.type is not EventType.BOUNCED or bounce is None:
        return None
    if bounce.reason is BounceReason.AUTO_REPLY:
        return None
    return BounceFact(
        at=event.time,
        event_id=event.id,
        type=bounce.type,
        reason=bounce.reason,
        diagnostic=bounce.diagnostic,
    )


def _complaint_fact(event: DeliveryEvent) -> ComplaintFact | None:
    if event.type is not EventType.COMPLAINED or by_provider(event):
        return None
    complaint = event.complaint
    if complaint is not None and complaint.type == NOT_SPAM:
        return None
    return ComplaintFact(
        at=event.time,
        event_id=event.id,
        type=None if complaint is None else complaint.type,
    )


def _references(event: DeliveryEvent) -> tuple[bool, ...]:
    return tuple(getattr(event, name) is not None for name in _REFERENCES)


def _earliest(one: datetime | None, other: datetime | None) -> datetime | None:
    times = [at for at in (one, other) if at is not None]
    return min(times, default=None)
