"""Which events stop further mail to a recipient, as versioned data: the first rule that fits decides.

Streaks of soft bounces are not counted yet: a transient bounce never suppresses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_classes import is_suppression
from streams.domain.delivery_events import (
    BounceReason,
    BounceType,
    DeliveryEvent,
    EventId,
    EventType,
)

RULE_VERSION: Final = 1
ANY: Final = "*"


class SuppressionReason(StrEnum):
    """Why a recipient gets no more mail. Each reason is a row of its own, put in and withdrawn on its own."""

    HARD_BOUNCE = "hard-bounce"
    COMPLAINT = "complaint"
    SOFT_BOUNCES = "soft-bounces"
    UNSUBSCRIBED = "unsubscribed"
    PROVIDER_SUPPRESSION = "provider-suppression"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """One row of table suppression that a rule asks for; tenant and lane "*" mean all."""

    recipient_key: RecipientKey
    tenant: str
    lane: str
    reason: SuppressionReason
    evidence_id: EventId
    evidence_at: datetime
    rule_version: int = RULE_VERSION

    @property
    def scope(self) -> tuple[RecipientKey, str, str, SuppressionReason]:
        """What makes the row: there is one for each scope, with its earliest evidence."""
        return self.recipient_key, self.tenant, self.lane, self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a rule does. of_tenant: only for the tenant of the message, where it is known; otherwise for all."""

    reason: SuppressionReason
    of_tenant: bool = False
    lane: str = ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Fits an event of this type whose other fields are among those given; None fits all. Without effect it only ends the search."""

    type: EventType
    bounce_types: frozenset[BounceType] | None = None
    bounce_reasons: frozenset[BounceReason] | None = None
    bounce_subtypes: frozenset[str] | None = None
    complaint_types: frozenset[str] | None = None
    by_provider: bool | None = None
    effect: Effect | None = None


_PROVIDER: Final = Effect(reason=SuppressionReason.PROVIDER_SUPPRESSION)
_OPT_OUT: Final = Effect(reason=SuppressionReason.UNSUBSCRIBED, of_tenant=True, lane="bulk")
# Our content, our reputation or a passing answer: nothing that speaks about the address.
_NOT_THE_ADDRESS: Final = frozenset(
    (
        BounceReason.AUTO_REPLY,
        BounceReason.CONTENT_REFUSED,
        BounceReason.MESSAGE_TOO_LARGE,
        BounceReason.POLICY,
        BounceReason.REPUTATION,
    )
)

RULES: Final = (
    Rule(
        type=EventType.BOUNCED,
        bounce_subtypes=frozenset(("UnsubscribedRecipient",)),
        effect=_OPT_OUT,
    ),
    Rule(type=EventType.BOUNCED, by_provider=True, effect=_PROVIDER),
    Rule(type=EventType.BOUNCED, bounce_reasons=_NOT_THE_ADDRESS),
    Rule(
        type=EventType.BOUNCED,
        bounce_types=frozenset((BounceType.PERMANENT,)),
        effect=Effect(reason=SuppressionReason.HARD_BOUNCE),
    ),
    Rule(type=EventType.COMPLAINED, by_provider=True, effect=_PROVIDER),
    Rule(type=EventType.COMPLAINED, complaint_types=frozenset(("not-spam",))),
    Rule(
        type=EventType.COMPLAINED,
        effect=Effect(reason=SuppressionReason.COMPLAINT, of_tenant=True),
    ),
    Rule(type=EventType.UNSUBSCRIBED, effect=_OPT_OUT),
)


def suppression_for(event: DeliveryEvent, *, tenant: str | None) -> Suppression | None:
    """The suppression that this event alone causes; tenant is that of the message, None while the message is unknown."""
    rule = next((rule for rule in RULES if _fits(rule, event)), None)
    if rule is None or rule.effect is None:
        return None
    return Suppression(
        recipient_key=event.recipient_key,
        tenant=(tenant or ANY) if rule.effect.of_tenant else ANY,
        lane=rule.effect.lane,
        reason=rule.effect.reason,
        evidence_id=event.id,
        evidence_at=event.time,
    )


def by_provider(event: DeliveryEvent) -> bool:
    """The provider did not send, since the address was on a suppression list of its own."""
    if event.bounce is not None:
        return event.bounce.reason is BounceReason.SUPPRESSED_BY_PROVIDER
    if event.complaint is not None and is_suppression(event.complaint.subtype):
        return True
    return event.reason == BounceReason.SUPPRESSED_BY_PROVIDER


def hard_bounce_share(event: DeliveryEvent) -> float:
    """What it adds to Amazon's count of bounces: 1 for a permanent bounce, the global list's too, that of an account's list not."""
    bounce = event.bounce
    if event.type is not EventType.BOUNCED or bounce is None or _is_simulated(event):
        return 0.0
    counts = not by_provider(event) or bounce.provider_subtype == "Suppressed"
    return 1.0 if bounce.type is BounceType.PERMANENT and counts else 0.0


def complaint_share(event: DeliveryEvent) -> float:
    """What it adds to Amazon's count of complaints: a complaint of one among n named people comes as n events and counts once."""
    suppression = suppression_for(event, tenant=None)
    if suppression is None or suppression.reason is not SuppressionReason.COMPLAINT:
        return 0.0
    return 0.0 if _is_simulated(event) else 1.0 / _people_named(event)


def _is_simulated(event: DeliveryEvent) -> bool:
    """Addresses of the mailbox simulator never count in a rate."""
    return event.raw is not None and event.raw.get("mailbox_simulator") is True


def _people_named(event: DeliveryEvent) -> int:
    complaint = None if event.raw is None else event.raw.get("complaint")
    named = complaint.get("complainedRecipients") if isinstance(complaint, Mapping) else None
    return max(len(named), 1) if isinstance(named, list) else 1


def _fits(rule: Rule, event: DeliveryEvent) -> bool:
    if rule.type is not event.type:
        return False
    if rule.by_provider is not None and rule.by_provider is not by_provider(event):
        return False
    bounce = event.bounce
    complaint = event.complaint
    return (
        _among(rule.bounce_types, None if bounce is None else bounce.type)
        and _among(rule.bounce_reasons, None if bounce is None else bounce.reason)
        and _among(rule.bounce_subtypes, None if bounce is None else bounce.provider_subtype)
        and _among(rule.complaint_types, None if complaint is None else complaint.type)
    )


def _among(allowed: frozenset[str] | None, value: str | None) -> bool:
    return allowed is None or value in allowed
