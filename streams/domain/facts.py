"""What the events of messages add up to. Any order and any number of repetitions give the same."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import (
    ANY,
    Suppression,
    SuppressionReason,
    by_provider,
    suppression_for,
)
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
    def scope(self) -> tuple[str, RecipientKey]:
        """The row of recipient_state that the event counts in: the tenant's, or that of no known tenant."""
        return self.tenant or ANY, self.event.recipient_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An event that the store took: it is new, or what is known of its message is."""

    placed: Placed
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How many rows evidence has moved: from where to submitted, or as refused to pending. duplicates: taken by SES twice."""

    from_ambiguous: int = 0
    from_held: int = 0
    from_pending: int = 0
    refused: int = 0
    duplicates: int = 0

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
    """One tenant's recipient over all messages; tenant "*" for messages that are not known."""

    tenant: str
    recipient_key: RecipientKey
    last_delivery: datetime | None = None
    hard_bounce: datetime | None = None
    complaint: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a batch of events adds, one entry a row, in the order of the rows' keys."""

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


def fold(placed: Iterable[Placed]) -> Changes:
    """Adds the events up."""
    outcomes: dict[tuple[UUID, RecipientKey], RecipientOutcome] = {}
    states: dict[tuple[str, RecipientKey], RecipientState] = {}
    suppressions: dict[tuple[Any, ...], Suppression] = {}
    for one in placed:
        outcome = outcome_of(one)
        if outcome is not None:
            where = outcome.outbox_id, outcome.recipient_key
            outcomes[where] = merge_outcomes(outcomes.get(where), outcome)
        suppression = suppression_for(one.event, tenant=one.tenant)
        if suppression is not None:
            scope = suppression.scope
            suppressions[scope] = merge_suppressions(suppressions.get(scope), suppression)
        state = _state_of(one, suppression)
        states[one.scope] = merge_states(states.get(one.scope), state)
    return Changes(
        outcomes=[outcomes[key] for key in sorted(outcomes)],
        states=[states[key] for key in sorted(states) if _says_something(states[key])],
        suppressions=[suppressions[key] for key in sorted(suppressions)],
    )


def outcome_of(placed: Placed) -> RecipientOutcome | None:
    """What this event alone says of its message; None if the message is unknown or nothing happened to it.

    An automatic reply is no bounce, and a complaint that the provider answers for its own list is nobody's.
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
    """Both together."""
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
    """The one with the earlier evidence."""
    if one is None:
        return other
    return min(one, other, key=lambda s: (s.evidence_at, s.evidence_id))


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
    return ComplaintFact(
        at=event.time,
        event_id=event.id,
        type=None if complaint is None else complaint.type,
    )


def _state_of(placed: Placed, suppression: Suppression | None) -> RecipientState:
    event = placed.event
    reason = None if suppression is None else suppression.reason
    tenant, recipient_key = placed.scope
    return RecipientState(
        tenant=tenant,
        recipient_key=recipient_key,
        last_delivery=event.time if event.type is EventType.DELIVERED else None,
        hard_bounce=event.time if reason is SuppressionReason.HARD_BOUNCE else None,
        complaint=event.time if reason is SuppressionReason.COMPLAINT else None,
    )


def _says_something(state: RecipientState) -> bool:
    return (state.last_delivery, state.hard_bounce, state.complaint) != (None, None, None)


def _references(event: DeliveryEvent) -> tuple[bool, ...]:
    return tuple(getattr(event, name) is not None for name in _REFERENCES)


def _earliest(one: datetime | None, other: datetime | None) -> datetime | None:
    times = [at for at in (one, other) if at is not None]
    return min(times, default=None)
