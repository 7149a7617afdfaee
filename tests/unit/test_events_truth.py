"""What the chaos run takes for a difference between the simulator's ledger and PostgreSQL."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from demo.events_truth import Cause, Fact, Held, differences, read_ledger

ANN, BOB = "ann@example.com", "bob@example.com"
KEYS = {ANN: "a" * 32, BOB: "b" * 32}


def fact(
    event: str, recipient: str = ANN, detail: str | None = None, at: str = "12:00:00.000"
) -> dict[str, Any]:
    return {
        "event": event,
        "recipient": recipient,
        "detail": detail,
        "occurred_at": at,
        "subscribers": 1,
    }


def call(*facts: dict[str, Any], to: tuple[str, ...] = (ANN,), fate: str = "bounce") -> Any:
    return {
        "outbox": "m1",
        "recipients": list(to),
        "outcomes": dict.fromkeys(to, fate),
        "facts": list(facts),
    }


BOUNCED = read_ledger([call(fact("Send"), fact("Bounce", detail="Permanent/NoEmail"))], KEYS)
RIGHT = Held(
    events=Counter({Fact("m1", KEYS[ANN], "accepted"): 1, Fact("m1", KEYS[ANN], "bounced"): 1}),
    unmatched=0,
    filled={("m1", KEYS[ANN]): frozenset(("accepted_at", "bounced_at"))},
    bounce_types={("m1", KEYS[ANN]): "permanent"},
    suppressions=frozenset({Cause(KEYS[ANN], "hard-bounce")}),
)


def test_equal_facts_are_no_difference() -> None:
    assert differences(BOUNCED, RIGHT) == []


@pytest.mark.parametrize(
    ("held", "what"),
    [
        (replace(RIGHT, events=RIGHT.events - Counter([Fact("m1", KEYS[ANN], "bounced")])), "lacks"),
        (replace(RIGHT, events=RIGHT.events + Counter([Fact("m1", KEYS[ANN], "bounced")])), "more often"),
        (replace(RIGHT, events=RIGHT.events + Counter([Fact("m2", KEYS[ANN], "bounced")])), "more often"),
        (replace(RIGHT, unmatched=3), "3 events without their message"),
        (replace(RIGHT, filled={}), "other columns"),
        (replace(RIGHT, bounce_types={("m1", KEYS[ANN]): "transient"}), "permanent"),
        (replace(RIGHT, suppressions=frozenset()), "missing"),
        (replace(RIGHT, suppressions=RIGHT.suppressions | {Cause(KEYS[BOB], "complaint")}), "without a cause"),
    ],
)  # fmt: skip
def test_each_difference_is_told(held: Held, what: str) -> None:
    assert [line for line in differences(BOUNCED, held) if what in line]


def test_an_open_of_a_mail_to_two_people_is_of_both() -> None:
    truth = read_ledger([call(fact("Open", BOB), to=(ANN, BOB), fate="open")], KEYS)
    assert truth.facts == Counter(Fact("m1", key, "opened") for key in KEYS.values())


def test_what_nobody_heard_is_no_fact() -> None:
    assert not read_ledger([call({**fact("Send"), "subscribers": 0})], KEYS).facts


@pytest.mark.parametrize(("second", "opens"), [("12:00:00.000", 1), ("12:00:00.001", 2)])
def test_two_opens_in_one_millisecond_are_told_in_the_same_words(second: str, opens: int) -> None:
    told = call(fact("Open"), fact("Open", BOB, at=second), to=(ANN, BOB), fate="open")
    assert set(read_ledger([told], KEYS).facts.values()) == {opens}


def test_an_automatic_reply_is_kept_and_is_no_bounce() -> None:
    truth = read_ledger([call(fact("Bounce", detail="Transient/General"), fate="auto-reply")], KEYS)
    assert truth.facts == Counter([Fact("m1", KEYS[ANN], "bounced")])
    assert truth.filled == {("m1", KEYS[ANN]): frozenset()}
    assert truth.suppressions == frozenset()


@pytest.mark.parametrize(("detail", "expected"), [("abuse", 1), ("not-spam", 0)])
def test_a_complaint_suppresses_unless_it_says_not_spam(detail: str, expected: int) -> None:
    truth = read_ledger([call(fact("Complaint", detail=detail), fate="complaint")], KEYS)
    assert len(truth.suppressions) == expected
