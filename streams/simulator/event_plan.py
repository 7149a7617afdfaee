"""Which events a message will have, and when: pure, chance is an argument."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from streams.simulator.addresses import is_mailbox_simulator
from streams.simulator.event_records import EventType
from streams.simulator.outcomes import DELIVERED, Fate, Outcome
from streams.simulator.settings import EventTimes, Milliseconds

_SPACING_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """One record to come; both times count from acceptance."""

    event: EventType
    recipients: tuple[str, ...]
    outcome: Outcome
    occurs_after_s: float
    published_after_s: float


def plan_events(
    outcomes: Mapping[str, Outcome], times: EventTimes, random: Random
) -> list[PlannedEvent]:
    """Send first, then what becomes of each recipient; a rejected message has no more than that."""
    everyone = tuple(outcomes)
    planned = [_planned(EventType.SEND, everyone, DELIVERED, _seconds(times.send_ms, random))]
    rejected = [outcome for outcome in outcomes.values() if outcome.fate is Fate.REJECT]
    if rejected:
        after = _seconds(times.outcome_ms, random)
        planned.append(_planned(EventType.REJECT, everyone, rejected[0], after))
    else:
        for recipients, outcome in _groups(outcomes):
            planned += _recipient_events(recipients, outcome, times, random)
    if random.random() < times.reorder_share:
        return _shuffled(planned, random)
    return planned


def _groups(outcomes: Mapping[str, Outcome]) -> list[tuple[tuple[str, ...], Outcome]]:
    """Simulated bounces of one request share a record, everyone else has their own."""
    merged: dict[Outcome, tuple[str, ...]] = {}
    groups: list[tuple[tuple[str, ...], Outcome]] = []
    for address, outcome in outcomes.items():
        if is_mailbox_simulator(address) and outcome.fate is Fate.BOUNCE:
            merged[outcome] = (*merged.get(outcome, ()), address)
        else:
            groups.append(((address,), outcome))
    return groups + [(recipients, outcome) for outcome, recipients in merged.items()]


def _recipient_events(
    recipients: tuple[str, ...], outcome: Outcome, times: EventTimes, random: Random
) -> list[PlannedEvent]:
    first = _seconds(times.outcome_ms, random)
    then = first + _seconds(times.feedback_ms, random)
    steps: dict[Fate, list[tuple[EventType, float]]] = {
        Fate.DELIVERED: [(EventType.DELIVERY, first)],
        Fate.BOUNCE: [(EventType.BOUNCE, first)],
        Fate.COMPLAINT: [(EventType.DELIVERY, first), (EventType.COMPLAINT, then)],
        Fate.AUTO_REPLY: [(EventType.DELIVERY, first), (EventType.BOUNCE, then)],
        Fate.DELAY: [(EventType.DELIVERY_DELAY, first), (EventType.DELIVERY, then)],
    }
    return [_planned(event, recipients, outcome, after) for event, after in steps[outcome.fate]]


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
