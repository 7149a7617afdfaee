"""Streaks of soft bounces: messages in a row that bounced softly, with no delivery between.

A message counts once, at its first soft bounce since the last delivery: repeated reports of one message make a streak
neither longer nor older nor younger. A message is what SES gave an id, so that matching it to a row of ours later changes nothing.
A delivery is one of any message, at the same moment or later; permanent and undetermined bounces neither count nor end a streak.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import (
    ANY,
    RULES,
    RuleSet,
    Suppression,
    SuppressionReason,
    is_soft_bounce,
)
from streams.domain.delivery_events import DeliveryEvent, EventId
from streams.domain.lifts import NO_LIFTS, Lifts


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftBounce:
    """One report of a message that bounced softly."""

    at: datetime
    event_id: EventId
    message: str

    @property
    def rank(self) -> tuple[datetime, EventId]:
        return self.at, self.event_id


_RANK: Final = attrgetter("at", "event_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Bounces of one tenant's recipient that say the same: one event that stands for all, and each as a member of a streak."""

    tenant: str | None
    event: DeliveryEvent
    members: list[SoftBounce]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streak:
    """So many messages, the first and the last bounce that count."""

    bounces: int = 0
    first: SoftBounce | None = None
    last: SoftBounce | None = None

    @property
    def since(self) -> datetime | None:
        return None if self.first is None else self.first.at


def soft_bounce(
    event: DeliveryEvent, *, outbox_id: UUID | None, rules: RuleSet = RULES
) -> SoftBounce | None:
    """The event as a member of a streak; None if it is none."""
    if event.bounce is None or not is_soft_bounce(event, rules=rules):
        return None
    return SoftBounce(at=event.time, event_id=event.id, message=message_of(event, outbox_id))


def message_of(event: DeliveryEvent, outbox_id: UUID | None) -> str:
    """Which message bounced, as far as it can be told."""
    return event.provider_message_id or (str(outbox_id) if outbox_id else event.id)


def streak_after(bounces: Iterable[SoftBounce], after: datetime | None) -> Streak:
    """The streak of those after this time: of the last delivery, or of a lift."""
    counting: dict[str, SoftBounce] = {}
    for bounce in bounces:
        if after is not None and bounce.at <= after:
            continue
        known = counting.get(bounce.message)
        if known is None or bounce.rank < known.rank:
            counting[bounce.message] = bounce
    found = counting.values()
    return Streak(
        bounces=len(found),
        first=min(found, key=_RANK, default=None),
        last=max(found, key=_RANK, default=None),
    )


def suppression_by_streak(
    scope: tuple[str, RecipientKey],
    bounces: Iterable[SoftBounce],
    *,
    last_delivery: datetime | None,
    lifts: Lifts = NO_LIFTS,
    rules: RuleSet = RULES,
) -> Suppression | None:
    """What the streak of a tenant's recipient suppresses as long as no delivery and no lift follows."""
    tenant, recipient_key = scope
    lifted = lifts.until((recipient_key, tenant, ANY, SuppressionReason.SOFT_BOUNCES))
    ends = [at for at in (last_delivery, lifted) if at is not None]
    streak = streak_after(bounces, max(ends, default=None))
    first, last = streak.first, streak.last
    if first is None or last is None or streak.bounces < rules.streak.bounces:
        return None
    if last.at - first.at < rules.streak.over:
        return None
    return Suppression(
        recipient_key=recipient_key,
        tenant=tenant,
        lane=ANY,
        reason=SuppressionReason.SOFT_BOUNCES,
        evidence_id=last.event_id,
        evidence_at=last.at,
        rule_version=rules.version,
        expires=last.at + rules.streak.lasting,
    )
