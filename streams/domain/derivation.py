"""What events add up to: a batch of them to what it adds, a whole history to everything that follows from it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import (
    ANY,
    RULES,
    RuleSet,
    Suppression,
    SuppressionReason,
    is_soft_bounce,
    suppression_for,
)
from streams.domain.delivery_events import EventType
from streams.domain.facts import (
    Changes,
    Placed,
    RecipientOutcome,
    RecipientScope,
    RecipientState,
    merge_outcomes,
    merge_states,
    merge_suppressions,
    outcome_of,
)
from streams.domain.lifts import NO_LIFTS, Lifts
from streams.domain.soft_bounces import (
    Alike,
    SoftBounce,
    soft_bounce,
    streak_after,
    suppression_by_streak,
)

_NONE: Final[Mapping[RecipientScope, datetime]] = {}


def fold(placed: Iterable[Placed], *, lifts: Lifts = NO_LIFTS, rules: RuleSet = RULES) -> Changes:
    """What these events add to whatever is known already: all but streaks, which need the whole history."""
    outcomes: dict[tuple[UUID, RecipientKey], RecipientOutcome] = {}
    states: dict[RecipientScope, RecipientState] = {}
    suppressions: dict[tuple[Any, ...], Suppression] = {}
    for one in placed:
        outcome = outcome_of(one)
        if outcome is not None:
            where = outcome.outbox_id, outcome.recipient_key
            outcomes[where] = merge_outcomes(outcomes.get(where), outcome)
        suppression = suppression_for(one.event, tenant=one.tenant, rules=rules)
        state = _state_of(one, suppression)
        states[one.scope] = merge_states(states.get(one.scope), state)
        if suppression is not None and lifts.allow(suppression):
            scope = suppression.scope
            suppressions[scope] = merge_suppressions(suppressions.get(scope), suppression)
    return Changes(
        outcomes=[outcomes[key] for key in sorted(outcomes)],
        states=[states[key] for key in sorted(states) if states[key].says_something],
        suppressions=[suppressions[key] for key in sorted(suppressions)],
    )


def derive(
    history: Iterable[Placed],
    *,
    lifts: Lifts = NO_LIFTS,
    rules: RuleSet = RULES,
    deliveries: Mapping[RecipientScope, datetime] = _NONE,
) -> Changes:
    """Everything that follows from the whole history of some recipients, of all tenants or of those that are given.

    deliveries: the last delivery of recipients whose deliveries are not in the history, or not all.
    """
    events = list(history)
    added = fold(events, lifts=lifts, rules=rules)
    known = [
        RecipientState(tenant=t, recipient_key=k, last_delivery=at)
        for (t, k), at in deliveries.items()
    ]
    states = {state.scope: state for state in added.states}
    for state in known:
        states[state.scope] = merge_states(states.get(state.scope), state)
    suppressions = list(added.suppressions)
    for scope, bounces in soft_bounces_by_scope(events, rules).items():
        state = states.get(scope) or RecipientState(tenant=scope[0], recipient_key=scope[1])
        states[scope] = with_streak(state, bounces)
        found = suppression_by_streak(
            scope, bounces, last_delivery=state.last_delivery, lifts=lifts, rules=rules
        )
        suppressions += [found] if found is not None else []
    return Changes(
        outcomes=added.outcomes,
        states=[states[key] for key in sorted(states) if states[key].says_something],
        suppressions=sorted(suppressions, key=lambda s: s.scope),
    )


def soft_bounces_by_scope(
    events: Iterable[Placed], rules: RuleSet = RULES
) -> dict[RecipientScope, list[SoftBounce]]:
    """The soft bounces among these events."""
    found: defaultdict[RecipientScope, list[SoftBounce]] = defaultdict(list)
    for one in events:
        bounce = soft_bounce(one.event, outbox_id=one.outbox_id, rules=rules)
        if bounce is not None:
            found[one.scope].append(bounce)
    return dict(found)


def soft_bounces_among(
    kept: Iterable[Alike], rules: RuleSet = RULES
) -> dict[RecipientScope, list[SoftBounce]]:
    """The same of bounces that were put together by what they say."""
    found: defaultdict[RecipientScope, list[SoftBounce]] = defaultdict(list)
    for alike in kept:
        if is_soft_bounce(alike.event, rules=rules):
            found[alike.tenant or ANY, alike.event.recipient_key] += alike.members
    return dict(found)


def with_streak(state: RecipientState, bounces: Iterable[SoftBounce]) -> RecipientState:
    """The state with the streak of these bounces, which are all that count since its last delivery."""
    streak = streak_after(bounces, state.last_delivery)
    return replace(state, soft_bounce_streak=streak.bounces, soft_bounces_since=streak.since)


def streaks_to_derive(
    placed: Iterable[Placed],
    before: Mapping[RecipientScope, RecipientState],
    rules: RuleSet = RULES,
) -> set[RecipientScope]:
    """Whose streak these events may change: a soft bounce always may, a delivery only where a streak had begun by then."""
    changed = set(soft_bounces_by_scope(placed := list(placed), rules))
    for one in placed:
        since = before[one.scope].soft_bounces_since
        is_delivery = one.event.type is EventType.DELIVERED
        if is_delivery and since is not None and one.event.time >= since:
            changed.add(one.scope)
    return changed


def restated(
    stored: RecipientState, derived: RecipientState, seen: Collection[datetime]
) -> RecipientState:
    """The state by another derivation, which looked at events of these times. What rests on an event that is not stored any
    more stays."""
    return replace(
        derived,
        last_delivery=_kept(stored.last_delivery, derived.last_delivery, seen, max),
        hard_bounce=_kept(stored.hard_bounce, derived.hard_bounce, seen, min),
        complaint=_kept(stored.complaint, derived.complaint, seen, min),
    )


def _kept(
    stored: datetime | None,
    derived: datetime | None,
    seen: Collection[datetime],
    better: Callable[[datetime, datetime], datetime],
) -> datetime | None:
    if stored is None or stored in seen:
        return derived
    return stored if derived is None else better(stored, derived)


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
