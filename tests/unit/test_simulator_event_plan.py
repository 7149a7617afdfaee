"""Which events a message gets, and in which order."""

from random import Random

import pytest

from streams.simulator.configuration_sets import EventType
from streams.simulator.event_plan import PlannedEvent, plan_events
from streams.simulator.outcomes import AUTO_REPLY, DELIVERED, Fate, Outcome, outcome_for
from streams.simulator.settings import EventTimes

TIMES = EventTimes(send_ms=(1, 5), outcome_ms=(10, 50), feedback_ms=(10, 50))


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - spread, not secrecy


def planned(outcomes: dict[str, Outcome], times: EventTimes = TIMES) -> list[PlannedEvent]:
    return plan_events(outcomes, times, seeded(1))


@pytest.mark.parametrize(
    ("outcome", "events"),
    [
        (DELIVERED, [EventType.SEND, EventType.DELIVERY]),
        (Outcome(fate=Fate.BOUNCE), [EventType.SEND, EventType.BOUNCE]),
        (
            Outcome(fate=Fate.COMPLAINT),
            [EventType.SEND, EventType.DELIVERY, EventType.COMPLAINT],
        ),
        (AUTO_REPLY, [EventType.SEND, EventType.DELIVERY, EventType.BOUNCE]),
        (
            Outcome(fate=Fate.DELAY),
            [EventType.SEND, EventType.DELIVERY_DELAY, EventType.DELIVERY],
        ),
        (Outcome(fate=Fate.REJECT), [EventType.SEND, EventType.REJECT]),
    ],
)
def test_each_fate_has_its_events_in_order_of_time(
    outcome: Outcome, events: list[EventType]
) -> None:
    plan = planned({"ann@example.com": outcome})
    assert [item.event for item in sorted(plan, key=lambda item: item.published_after_s)] == events
    assert all(item.occurs_after_s == item.published_after_s for item in plan)


def test_every_recipient_has_a_record_of_its_own_and_send_names_all() -> None:
    plan = planned({"ann@example.com": DELIVERED, "bob@example.com": Outcome(fate=Fate.BOUNCE)})
    assert {(item.event, item.recipients) for item in plan} == {
        (EventType.SEND, ("ann@example.com", "bob@example.com")),
        (EventType.DELIVERY, ("ann@example.com",)),
        (EventType.BOUNCE, ("bob@example.com",)),
    }


def test_simulated_bounces_of_one_request_share_a_record() -> None:
    addresses = [f"bounce+{n}@simulator.amazonses.com" for n in range(3)]
    plan = planned({address: outcome_for(address, ()) for address in addresses})
    bounces = [item.recipients for item in plan if item.event is EventType.BOUNCE]
    assert bounces == [tuple(addresses)]


def test_one_rejected_recipient_rejects_the_message() -> None:
    plan = planned({"ann@example.com": DELIVERED, "bob@example.com": Outcome(fate=Fate.REJECT)})
    assert [item.event for item in plan] == [EventType.SEND, EventType.REJECT]


def test_reordered_events_are_out_of_order_but_never_before_they_happen() -> None:
    random = seeded(7)
    times = EventTimes(reorder_share=1.0)
    orders = set()
    for _ in range(50):
        plan = plan_events({"ann@example.com": Outcome(fate=Fate.COMPLAINT)}, times, random)
        assert all(item.published_after_s >= item.occurs_after_s for item in plan)
        plan.sort(key=lambda item: item.published_after_s)
        orders.add(tuple(item.event for item in plan))
    assert len(orders) == 6
