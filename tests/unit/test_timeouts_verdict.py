"""What `python -m demo.timeouts` calls wrong."""

from typing import Any

import pytest

from demo.timeouts import counts, faults

RIGHT = {
    "messages": 100,
    "share": 0.05,
    "unanswered": 6,
    "settled_by_events": 6,
    "ever_ambiguous": 6,
    "sent_twice": 0,
    "lost": 0,
    "possible_duplicates": 0,
}


def call(attempt: str, answer: str = "sent", outbox: str = "") -> dict[str, Any]:
    return {"attempt": attempt, "outbox": outbox or f"row of {attempt}", "answer": answer}


def test_a_run_as_promised_has_no_fault() -> None:
    assert faults(RIGHT) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lost": 1}, "1 lost"),
        ({"sent_twice": 2}, "2 sent_twice"),
        ({"possible_duplicates": 1}, "1 possible_duplicates"),
        ({"settled_by_events": 5}, "1 messages were not settled by events"),
        ({"unanswered": 2, "settled_by_events": 2}, "too few calls"),
        ({"ever_ambiguous": 5}, "fewer unknown outcomes"),
    ],
)
def test_each_broken_promise_is_a_fault(change: dict[str, int], words: str) -> None:
    (fault,) = faults(RIGHT | change)
    assert words in fault


@pytest.mark.parametrize(
    "attempt",
    [
        ("unknown", "ambiguous", True),
        ("accepted", "submitted", False),
        ("accepted", "failed", True),
        None,
    ],
)
def test_only_an_event_of_the_same_attempt_settles(attempt: tuple[str, str, bool] | None) -> None:
    attempts = {"a": ("accepted", "submitted", True)} | ({"b": attempt} if attempt else {})
    found = counts([call("a", "lost"), call("b", "lost"), call("c")], attempts)
    assert (found["unanswered"], found["settled_by_events"]) == (2, 1)


def test_two_calls_for_one_message_are_sent_twice() -> None:
    assert counts([call("a", outbox="x"), call("b", outbox="x")], {})["sent_twice"] == 1
