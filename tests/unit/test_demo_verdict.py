"""The demo's verdict finds each fault that it is there to find."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from demo.plan import COMMITTED, FINAL_STATE, Kind, Plan, make_plan
from demo.verdict import Found, judge

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PLAN = make_plan(1)
IDS = {m.number: uuid4() for m in PLAN.messages}
COMMITTED_AT = {i: NOW.timestamp() for i in IDS.values()}


def call(outbox_id: UUID, recipients: list[str], event: str) -> dict[str, Any]:
    at = (NOW + timedelta(milliseconds=20)).isoformat()
    facts = [
        {"recipient": r, "event": e, "published_at": at}
        for r in recipients
        for e in ("Send", event)
    ]
    return {"outbox": str(outbox_id), "recipients": recipients, "accepted_at": at, "facts": facts}


def good() -> Found:
    ledger, facts, suppressed = [], {}, {}
    for m in PLAN.messages:
        if FINAL_STATE[m.kind] != "submitted":
            continue
        event = "Bounce" if m.kind is Kind.BOUNCES else "Delivery"
        column = "bounced_at" if m.kind is Kind.BOUNCES else "delivered_at"
        recipients = [m.recipient, *([m.cc] if m.cc else [])]
        ledger.append(call(IDS[m.number], recipients, event))
        for recipient in recipients:
            facts[IDS[m.number], recipient] = frozenset(("accepted_at", column))
        if m.kind is Kind.BOUNCES:
            suppressed[m.recipient] = NOW + timedelta(milliseconds=70)
    return Found(
        states={IDS[m.number]: FINAL_STATE[m.kind] for m in PLAN.messages},
        ledger=ledger,
        facts=facts,
        suppressed_at=suppressed,
        keys={m.recipient: m.recipient for m in PLAN.messages},
    )


def first(kind: Kind) -> Any:
    return next(m for m in PLAN.messages if m.kind is kind)


def verdict(found: Found) -> Mapping[str, Any]:
    judged = judge(PLAN, IDS, COMMITTED_AT, found)
    return {**judged.numbers, "faults": judged.faults}


def test_a_good_run_has_no_fault() -> None:
    found = verdict(good())
    assert found["faults"] == []
    assert (found["committed"], found["submitted"], found["lost"]) == (COMMITTED, 1800, 0)
    assert found["commit_to_ses_ms_p50"] == pytest.approx(20)
    assert found["event_to_suppression_ms_p99"] == pytest.approx(50)


def without_row(found: Found) -> Found:
    return replace(
        found,
        states={i: s for i, s in found.states.items() if i != IDS[first(Kind.ORDINARY).number]},
    )


def in_state(state: str, kind: Kind = Kind.ORDINARY) -> Callable[[Found], Found]:
    def change(found: Found) -> Found:
        return replace(found, states={**found.states, IDS[first(kind).number]: state})

    return change


def never_sent(found: Found) -> Found:
    return replace(found, ledger=found.ledger[1:])


def sent_again(found: Found) -> Found:
    return replace(found, ledger=[*found.ledger, found.ledger[0]])


def sent_to(kind: Kind) -> Callable[[Found], Found]:
    def change(found: Found) -> Found:
        m = first(kind)
        return replace(
            found, ledger=[*found.ledger, call(IDS[m.number], [m.recipient], "Delivery")]
        )

    return change


def sent_uncommitted(found: Found) -> Found:
    return replace(found, ledger=[*found.ledger, call(uuid4(), ["x@example.com"], "Delivery")])


def fact_missing(found: Found) -> Found:
    return replace(found, facts=dict(list(found.facts.items())[1:]))


def fact_invented(found: Found) -> Found:
    return replace(found, facts={**found.facts, (uuid4(), "x"): frozenset(("delivered_at",))})


@pytest.mark.parametrize(
    ("number", "change"),
    [
        ("lost", without_row),
        ("lost", never_sent),
        ("lost", in_state("pending")),
        ("lost", in_state("sending")),
        ("ambiguous", in_state("ambiguous")),
        ("sent_twice", sent_again),
        ("sent_to_suppressed", sent_to(Kind.SUPPRESSED)),
        ("sent_to_suppressed", sent_to(Kind.FOLLOW_UP)),
        ("sent_uncommitted", sent_uncommitted),
        ("facts_missing", fact_missing),
        ("facts_missing", fact_invented),
    ],
)
def test_each_fault_is_counted_and_named(number: str, change: Callable[[Found], Found]) -> None:
    found = verdict(change(good()))
    assert found[number] > 0
    assert any(fault.startswith(f"{number} is") for fault in found["faults"])


def test_a_dedup_key_that_made_another_row_is_a_fault() -> None:
    judged = judge(PLAN, IDS, COMMITTED_AT, good(), twins_made_anew=1)
    assert judged.faults == ["twins_made_anew is 1 instead of 0"]


@pytest.mark.parametrize(
    "change", [in_state("failed"), in_state("suppressed"), in_state("submitted", Kind.BROKEN)]
)
def test_another_end_than_the_scripts_is_a_fault(change: Callable[[Found], Found]) -> None:
    assert verdict(change(good()))["faults"]


@pytest.mark.parametrize("seed", range(5))
def test_the_script_has_the_same_counts_whatever_the_seed(seed: int) -> None:
    plan: Plan = make_plan(seed)
    assert len(plan.messages) == COMMITTED
    assert plan.expected_states == PLAN.expected_states
    assert len({m.number for m in plan.messages}) == COMMITTED
