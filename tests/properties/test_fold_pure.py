"""Adding events up is commutative and idempotent, and a batch may be cut anywhere."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import (
    RULES,
    StreakRule,
    Suppression,
    SuppressionReason,
    suppression_for,
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
from streams.domain.derivation import derive, fold
from streams.domain.facts import (
    Changes,
    Placed,
    RecipientOutcome,
    RecipientState,
    distinct,
    merge_outcomes,
    merge_states,
    merge_suppressions,
)
from streams.domain.lifts import Lift, Lifts

START = datetime(2026, 1, 15, 10, 0, tzinfo=UTC)
KEYS = [RecipientKey("0" * 32), RecipientKey("1" * 32)]
MESSAGES = [UUID(int=1), UUID(int=2)]
TENANTS = {MESSAGES[0]: "one", MESSAGES[1]: "two"}

bounces = st.builds(
    Bounce,
    type=st.sampled_from(BounceType),
    reason=st.sampled_from(BounceReason),
    diagnostic=st.sampled_from([None, "550 no", "451 later"]),
)
complaints = st.builds(Complaint, type=st.sampled_from([None, "abuse", "not-spam"]))


@st.composite
def placed_events(draw: st.DrawFn) -> Placed:
    kind = draw(st.sampled_from([k for k in EventType if not k.is_life_cycle]))
    message = draw(st.sampled_from([None, *MESSAGES]))
    return Placed(
        event=DeliveryEvent(
            id=EventId(draw(st.text("abcdef", min_size=1, max_size=3))),
            type=kind,
            time=START + timedelta(seconds=draw(st.integers(0, 5))),
            recipient_key=draw(st.sampled_from(KEYS)),
            provider_message_id=draw(st.sampled_from(["p-1", "p-2", None])),
            bounce=draw(bounces) if kind is EventType.BOUNCED else None,
            complaint=draw(complaints) if kind is EventType.COMPLAINED else None,
        ),
        outbox_id=message,
        tenant=None if message is None else TENANTS[message],
    )


# Two messages within two seconds are a streak.
IMPATIENT = replace(
    RULES,
    version=2,
    streak=StreakRule(bounces=2, over=timedelta(seconds=2), lasting=timedelta(days=1)),
)
# One event has one id.
histories = st.lists(placed_events(), max_size=12, unique_by=lambda p: p.event.id)


@given(histories, st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(history: list[Placed], random: st.DataObject) -> None:
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fold(shuffled) == fold(history)


@given(histories)
def test_repeated_events_change_nothing(history: list[Placed]) -> None:
    assert fold([*history, *reversed(history)]) == fold(history)


@given(histories, st.integers(0, 12))
def test_a_history_may_be_cut_anywhere(history: list[Placed], cut: int) -> None:
    assert together(fold(history[:cut]), fold(history[cut:])) == fold(history)


def together(one: Changes, other: Changes) -> Changes:
    """What writing one batch after the other leaves."""
    outcomes: dict[object, RecipientOutcome] = {}
    for o in [*one.outcomes, *other.outcomes]:
        where = o.outbox_id, o.recipient_key
        outcomes[where] = merge_outcomes(outcomes.get(where), o)
    states: dict[object, RecipientState] = {}
    for s in [*one.states, *other.states]:
        key = s.tenant, s.recipient_key
        states[key] = merge_states(states.get(key), s)
    suppressions: dict[object, Suppression] = {}
    for n in [*one.suppressions, *other.suppressions]:
        suppressions[n.scope] = merge_suppressions(suppressions.get(n.scope), n)
    return Changes(
        outcomes=sorted(outcomes.values(), key=lambda o: (o.outbox_id, o.recipient_key)),
        states=sorted(states.values(), key=lambda s: (s.tenant, s.recipient_key)),
        suppressions=sorted(suppressions.values(), key=lambda n: n.scope),
    )


@given(histories)
def test_a_suppression_rests_on_evidence_of_its_own_reason(history: list[Placed]) -> None:
    wanted = [suppression_for(p.event, tenant=p.tenant) for p in history]
    for suppression in fold(history).suppressions:
        assert suppression in wanted


@given(histories)
def test_more_events_never_lift_a_suppression(history: list[Placed]) -> None:
    all_scopes = {s.scope for s in fold(history).suppressions}
    for n in range(len(history)):
        assert {s.scope for s in fold(history[:n]).suppressions} <= all_scopes


@given(histories, st.randoms(use_true_random=False))
def test_what_follows_from_a_history_does_not_depend_on_its_order(
    history: list[Placed], random: st.DataObject
) -> None:
    shuffled = [*history, *history]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert derive(shuffled, rules=IMPATIENT) == derive(history, rules=IMPATIENT)


@given(histories)
def test_streaks_are_all_that_a_history_adds_to_its_events(history: list[Placed]) -> None:
    added, whole = fold(history), derive(history, rules=IMPATIENT)
    assert whole.outcomes == added.outcomes
    streaks = {s.scope for s in whole.suppressions if s.reason is SuppressionReason.SOFT_BOUNCES}
    assert [replace(s, rule_version=1) for s in whole.suppressions if s.scope not in streaks] == (
        added.suppressions
    )


@given(histories, st.integers(0, 5))
def test_what_a_lift_of_everything_leaves_is_what_the_events_after_it_suppress(
    history: list[Placed], second: int
) -> None:
    at = START + timedelta(seconds=second)
    lifts = Lifts([Lift(recipient_key="*", tenant="*", lane="*", reason="*", at=at)])
    after = [p for p in history if p.event.time > at]
    deliveries = {
        s.scope: s.last_delivery for s in derive(history).states if s.last_delivery is not None
    }
    left = derive(history, lifts=lifts, rules=IMPATIENT).suppressions
    assert left == derive(after, rules=IMPATIENT, deliveries=deliveries).suppressions


@given(histories)
def test_a_batch_holds_each_event_once(history: list[Placed]) -> None:
    events = [p.event for p in history]
    once = distinct([*events, *events])
    assert sorted(e.id for e in once) == sorted(e.id for e in events)
