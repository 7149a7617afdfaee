"""Which events stop further mail to a recipient, as versioned data: of the rules of a version the first that fits decides.

A version is never changed once it was released: `mailstreams reclassify` takes the stored evidence from one to another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_classes import (
    CLASSES,
    NOT_SPAM,
    BounceClasses,
    classify_bounce,
    is_label,
    is_suppression,
)
from streams.domain.delivery_events import (
    Bounce,
    BounceReason,
    BounceType,
    DeliveryEvent,
    EventId,
    EventType,
)

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
    """One row of table suppression that a rule asks for; tenant and lane "*" mean all.

    unattributed: the evidence is a complaint that names several people, of whom only one complained.
    """

    recipient_key: RecipientKey
    tenant: str
    lane: str
    reason: SuppressionReason
    evidence_id: EventId
    evidence_at: datetime
    rule_version: int
    unattributed: bool = False
    expires: datetime | None = None

    @property
    def scope(self) -> tuple[RecipientKey, str, str, SuppressionReason]:
        """What makes the row: there is one for each scope."""
        return self.recipient_key, self.tenant, self.lane, self.reason

    @property
    def rank(self) -> tuple[bool, datetime, EventId]:
        """The total order that chooses the evidence which is told: the lowest wins."""
        return self.unattributed, self.evidence_at, self.evidence_id

    def in_force(self, now: datetime) -> bool:
        return self.expires is None or self.expires > now


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a rule does. of_tenant: only for the tenant of the message, where it is known; otherwise for all."""

    reason: SuppressionReason
    of_tenant: bool = False
    lane: str = ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Fits an event of this type whose other fields are among those given; None fits all. Without effect it only ends the search.

    is_soft: the event counts in the recipient's streak of soft bounces.
    """

    type: EventType
    bounce_types: frozenset[BounceType] | None = None
    bounce_reasons: frozenset[BounceReason] | None = None
    bounce_subtypes: frozenset[str] | None = None
    complaint_types: frozenset[str] | None = None
    by_provider: bool | None = None
    effect: Effect | None = None
    is_soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreakRule:
    """So many messages in a row that bounced softly, over at least this time, suppress for so long after the last of them."""

    bounces: int
    over: timedelta
    lasting: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """One version of the rules: how bounces are classified, what an event does, what a streak does."""

    version: int
    rules: Sequence[Rule]
    streak: StreakRule
    classes: BounceClasses = CLASSES


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

_RULES_1: Final = (
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
    Rule(type=EventType.BOUNCED, bounce_types=frozenset((BounceType.TRANSIENT,)), is_soft=True),
    Rule(type=EventType.COMPLAINED, by_provider=True, effect=_PROVIDER),
    Rule(type=EventType.COMPLAINED, complaint_types=frozenset((NOT_SPAM,))),
    Rule(
        type=EventType.COMPLAINED,
        effect=Effect(reason=SuppressionReason.COMPLAINT, of_tenant=True),
    ),
    Rule(type=EventType.UNSUBSCRIBED, effect=_OPT_OUT),
)
RULE_VERSIONS: Final[Mapping[int, RuleSet]] = {
    1: RuleSet(
        version=1,
        rules=_RULES_1,
        streak=StreakRule(bounces=5, over=timedelta(hours=72), lasting=timedelta(days=14)),
    ),
}
# The version that events are folded with.
RULE_VERSION: Final = 1
RULES: Final = RULE_VERSIONS[RULE_VERSION]


def suppression_for(
    event: DeliveryEvent, *, tenant: str | None, rules: RuleSet = RULES
) -> Suppression | None:
    """The suppression that this event alone causes; tenant is that of the message, None while the message is unknown."""
    effect = _effect(event, rules)
    if effect is None:
        return None
    return Suppression(
        recipient_key=event.recipient_key,
        tenant=(tenant or ANY) if effect.of_tenant else ANY,
        lane=effect.lane,
        reason=effect.reason,
        evidence_id=event.id,
        evidence_at=event.time,
        rule_version=rules.version,
        unattributed=event.type is EventType.COMPLAINED and people_named(event) > 1,
    )


def is_soft_bounce(event: DeliveryEvent, *, rules: RuleSet = RULES) -> bool:
    """The mailbox did not take the message though it may take the next: it counts in the streak."""
    rule = _rule(classified(event, rules), rules)
    return rule is not None and rule.is_soft


def classified(event: DeliveryEvent, rules: RuleSet) -> DeliveryEvent:
    """The event with its bounce as this version of the rules classifies it.

    A bounce whose kept words no version classifies as it was published has lost some on the way: it stays as it was published.
    """
    bounce = event.bounce
    if bounce is None or not is_label(bounce.provider_type):
        return event
    versions = (known.classes for known in RULE_VERSIONS.values())
    others = [classes for classes in versions if classes is not rules.classes]
    published = bounce.type, bounce.reason
    if not any(_classes_of(bounce, classes) == published for classes in others):
        return event
    kind, reason = _classes_of(bounce, rules.classes)
    return replace(event, bounce=replace(bounce, type=kind, reason=reason))


def _classes_of(bounce: Bounce, classes: BounceClasses) -> tuple[BounceType, BounceReason]:
    return classify_bounce(
        label=bounce.provider_type,
        subtype=bounce.provider_subtype,
        status=bounce.status,
        diagnostic=bounce.diagnostic,
        classes=classes,
    )


def _effect(event: DeliveryEvent, rules: RuleSet) -> Effect | None:
    rule = _rule(classified(event, rules), rules)
    return None if rule is None else rule.effect


def _rule(event: DeliveryEvent, rules: RuleSet) -> Rule | None:
    return next((rule for rule in rules.rules if _fits(rule, event)), None)


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
    effect = _effect(event, RULES)
    if effect is None or effect.reason is not SuppressionReason.COMPLAINT:
        return 0.0
    return 0.0 if _is_simulated(event) else 1.0 / people_named(event)


def _is_simulated(event: DeliveryEvent) -> bool:
    """Addresses of the mailbox simulator never count in a rate."""
    return event.raw is not None and event.raw.get("mailbox_simulator") is True


def people_named(event: DeliveryEvent) -> int:
    """How many people the complaint names, of whom SES knows only that one complained.

    However often and under whatever address a report names the only person that the mail went to, it is one.
    """
    raw = {} if event.raw is None else event.raw
    if len(_members(raw.get("mail"), "destination")) == 1:
        return 1
    named = _members(raw.get("complaint"), "complainedRecipients")
    keys = {n["emailAddress"] for n in named if isinstance(n, dict) and _is_told(n)}
    return max(len(keys) + sum(not _is_told(n) for n in named), 1)


def _members(fields: object, name: str) -> list[Any]:
    found = fields.get(name) if isinstance(fields, Mapping) else None
    return found if isinstance(found, list) else []


def _is_told(named: object) -> bool:
    return isinstance(named, dict) and isinstance(named.get("emailAddress"), str)


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
