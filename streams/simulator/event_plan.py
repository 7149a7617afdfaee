"""Which events a message will have, and when: pure, chance is an argument."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from streams.simulator.addresses import is_mailbox_simulator
from streams.simulator.configuration_sets import EventType
from streams.simulator.outcomes import DELIVERED, WHOLE_MESSAGE, Fate, Outcome, Step
from streams.simulator.settings import EventTimes, Milliseconds

_SPACING_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """One record to come; times count from acceptance, `age_s` is how old its envelope claims to be."""

    event: EventType
    recipients: tuple[str, ...]
    outcome: Outcome
    occurs_after_s: float
    published_after_s: float
    early: bool = False
    """Published and tried before the call is answered."""
    age_s: float = 0.0
    copies: int = 1
    same_id: bool = True
    copies_after_s: float = 0.0
    legacy: bool = False
    """As a notification of the identity, not through event publishing."""


def plan_events(
    outcomes: Mapping[str, Outcome], times: EventTimes, random: Random
) -> list[PlannedEvent]:
    """Send first, then what becomes of each recipient. A rejected message has no more than that,
    one that could not be rendered not even Send; scripts are left as they are written."""
    everyone = tuple(outcomes)
    whole = [outcome for outcome in outcomes.values() if outcome.fate in WHOLE_MESSAGE]
    planned = []
    if not _is_sent_otherwise(outcomes):
        after = _seconds(times.send_ms, random)
        planned.append(_planned(EventType.SEND, everyone, DELIVERED, after))
    if whole:
        event = _OF_MESSAGE[whole[0].fate]
        after = _seconds(times.outcome_ms, random)
        planned.append(_planned(event, everyone, whole[0], after))
    else:
        for recipients, outcome in _groups(outcomes, merge=times.merge_recipients):
            planned += _recipient_events(recipients, outcome, times, random)
    if any(outcome.steps for outcome in outcomes.values()):
        return planned
    return _disturbed(planned, times, random)


_OF_MESSAGE = {
    Fate.REJECT: EventType.REJECT,
    Fate.RENDERING_FAILURE: EventType.RENDERING_FAILURE,
}


def _is_sent_otherwise(outcomes: Mapping[str, Outcome]) -> bool:
    """Whether Send does not come by itself: a script has it, or the message was never sent."""
    steps = [step for outcome in outcomes.values() for step in outcome.steps]
    return any(step.event is EventType.SEND for step in steps) or any(
        outcome.fate is Fate.RENDERING_FAILURE for outcome in outcomes.values()
    )


def _groups(
    outcomes: Mapping[str, Outcome], *, merge: bool
) -> list[tuple[tuple[str, ...], Outcome]]:
    """Simulated bounces of one request share a record, everyone else has their own unless told."""
    merged: dict[Outcome, tuple[str, ...]] = {}
    groups: list[tuple[tuple[str, ...], Outcome]] = []
    for address, outcome in outcomes.items():
        if merge or (is_mailbox_simulator(address) and outcome.fate is Fate.BOUNCE):
            merged[outcome] = (*merged.get(outcome, ()), address)
        else:
            groups.append(((address,), outcome))
    return groups + [(recipients, outcome) for outcome, recipients in merged.items()]


def _recipient_events(
    recipients: tuple[str, ...], outcome: Outcome, times: EventTimes, random: Random
) -> list[PlannedEvent]:
    if outcome.fate is Fate.SCRIPT:
        return [_scripted(recipients, step, random) for step in outcome.steps]
    first = _seconds(times.outcome_ms, random)
    then = first + _seconds(times.feedback_ms, random)
    steps: dict[Fate, list[tuple[EventType, float]]] = {
        Fate.DELIVERED: [(EventType.DELIVERY, first)],
        Fate.BOUNCE: [(EventType.BOUNCE, first)],
        Fate.COMPLAINT: [(EventType.DELIVERY, first), (EventType.COMPLAINT, then)],
        Fate.AUTO_REPLY: [(EventType.DELIVERY, first), (EventType.BOUNCE, then)],
        Fate.DELAY: [(EventType.DELIVERY_DELAY, first), (EventType.DELIVERY, then)],
        Fate.OPEN: [(EventType.DELIVERY, first), (EventType.OPEN, then)],
        Fate.CLICK: [
            (EventType.DELIVERY, first),
            (EventType.OPEN, then),
            (EventType.CLICK, then + _SPACING_S),
        ],
        Fate.SUBSCRIPTION: [(EventType.DELIVERY, first), (EventType.SUBSCRIPTION, then)],
    }
    if outcome.complaint_subtype is not None:
        steps[Fate.COMPLAINT] = [(EventType.COMPLAINT, first)]
    return [_planned(event, recipients, outcome, after) for event, after in steps[outcome.fate]]


def _scripted(recipients: tuple[str, ...], step: Step, random: Random) -> PlannedEvent:
    after = 0.0 if step.early else _seconds(step.after_ms, random)
    return PlannedEvent(
        event=step.event,
        recipients=recipients,
        outcome=step.outcome,
        occurs_after_s=after if step.occurs_ms is None else step.occurs_ms / 1000,
        published_after_s=after,
        early=step.early,
        age_s=step.age_s,
        copies=step.copies,
        same_id=step.same_id,
        copies_after_s=step.copies_ms / 1000,
        legacy=step.legacy,
    )


def _disturbed(
    planned: list[PlannedEvent], times: EventTimes, random: Random
) -> list[PlannedEvent]:
    """The shares of messages whose events are early or out of order, and of late events."""
    if random.random() < times.early_share:
        return [
            replace(event, early=True, occurs_after_s=0.0, published_after_s=0.0)
            for event in planned
        ]
    if random.random() < times.reorder_share:
        planned = _shuffled(planned, random)
    return [
        _late(event, times, random) if random.random() < times.late_share else event
        for event in planned
    ]


def _late(event: PlannedEvent, times: EventTimes, random: Random) -> PlannedEvent:
    return replace(
        event,
        published_after_s=event.published_after_s + _seconds(times.late_ms, random),
        age_s=times.late_age_s,
    )


def _shuffled(planned: list[PlannedEvent], random: Random) -> list[PlannedEvent]:
    """Published in any order, but none before the last has happened."""
    last = max(event.occurs_after_s for event in planned)
    mixed = random.sample(planned, len(planned))
    return [
        replace(event, published_after_s=last + place * _SPACING_S)
        for place, event in enumerate(mixed)
    ]


def _planned(
    event: EventType, recipients: tuple[str, ...], outcome: Outcome, after: float
) -> PlannedEvent:
    return PlannedEvent(
        event=event,
        recipients=recipients,
        outcome=outcome,
        occurs_after_s=after,
        published_after_s=after,
    )


def _seconds(milliseconds: Milliseconds, random: Random) -> float:
    return random.uniform(*milliseconds) / 1000
