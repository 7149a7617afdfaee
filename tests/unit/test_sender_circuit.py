"""What a sender knows of SES: who pays for a failure, how many calls may be under way, what is told to the others."""

import asyncio
import time
from uuid import UUID

import pytest

from streams.domain.circuit import CLOSED, NOTHING, REACHED, CircuitState, Report, explanation
from streams.sending.circuit import UNANSWERED, UNTOLD, Circuit

FIRST, SECOND = UUID(int=1), UUID(int=2)
FOREVER = 1e12
OPEN = CircuitState(failing=20, failing_messages=12, open_since=1.7e9, reason="SES failed")


def failing(circuit: Circuit, message: UUID, *, is_unwritten: bool = True) -> bool:
    return circuit.failed(message, reason="no answer", is_unwritten=is_unwritten)


# Who pays ---------------------------------------------------------------------------------------------------------------


def test_one_message_alone_is_charged_each_time() -> None:
    circuit = Circuit()
    assert [failing(circuit, FIRST) for _ in range(5)] == [True] * 5


def test_where_other_messages_fail_too_none_is_charged() -> None:
    circuit = Circuit()
    messages = (FIRST, SECOND, FIRST, SECOND)
    assert [failing(circuit, m) for m in messages] == [True, False, False, False]


def test_where_messages_of_other_senders_fail_too_none_is_charged() -> None:
    circuit = Circuit()
    circuit.learn(CircuitState(failing=3, failing_messages=2))
    assert not failing(circuit, FIRST)


def test_a_probe_that_fails_is_charged_to_nobody() -> None:
    circuit = Circuit()
    circuit.learn(OPEN)
    assert not failing(circuit, FIRST)


def test_a_call_that_reaches_ses_ends_the_row() -> None:
    circuit = Circuit()
    failing(circuit, FIRST)
    failing(circuit, SECOND)
    circuit.reached(begun=FOREVER)
    assert failing(circuit, SECOND)


def test_calls_that_fail_together_make_the_wait_no_longer() -> None:
    circuit = Circuit()
    for n in range(50):
        failing(circuit, UUID(int=n + 1))
    assert 0.5 <= circuit.delay_s(1) < 1.0
    assert 13.5 <= circuit.delay_s(4) < 27.0


# How many calls -----------------------------------------------------------------------------------------------------------


async def entered(circuit: Circuit, count: int) -> int:
    """How many of so many calls may begin at once."""
    return sum([await circuit.enter(UUID(int=n + 1), patience_s=0.0) for n in range(count)])


async def test_few_calls_begin_while_nothing_is_answered() -> None:
    assert await entered(Circuit(), 100) == UNANSWERED


async def test_an_answer_lets_go_what_waits_behind_failures_that_were_not_told() -> None:
    """Also where the answer before it took all that was under way for answered."""
    circuit = Circuit()
    assert await circuit.enter(UUID(int=1), patience_s=0.0)
    circuit.reached(begun=time.monotonic())
    for n in range(UNTOLD):
        failing(circuit, UUID(int=n + 1), is_unwritten=False)
    held = asyncio.create_task(circuit.enter(UUID(int=100), patience_s=60.0))
    await asyncio.sleep(0)
    assert not held.done()
    circuit.reached(begun=time.monotonic())
    for _ in range(5):
        await asyncio.sleep(0)
    is_let_go = held.done()
    held.cancel()
    assert is_let_go


async def test_every_answer_lets_as_many_more_begin() -> None:
    circuit = Circuit()
    for answers in range(1, 9):
        for n in range(UNANSWERED):
            assert await circuit.enter(UUID(int=answers * 100 + n), patience_s=0.0)
        assert not circuit.has_room
        circuit.reached(begun=FOREVER)
    assert circuit.has_room


@pytest.mark.parametrize(
    ("began_ago_s", "windows"), [(2.0, [6, 12, 24, 48, 48]), (0.1, [6, 6, 6, 6, 6])]
)
async def test_where_all_had_begun_an_answer_lets_twice_as_many_begin(
    began_ago_s: float, windows: list[int]
) -> None:
    """The more the longer SES takes to answer."""
    circuit = Circuit(most=48)
    allowed = []
    for _ in range(5):
        allowed.append(await entered(circuit, 100))
        for _ in range(allowed[-1]):
            circuit.reached(begun=time.monotonic() - began_ago_s)
    assert allowed == windows


async def test_a_failure_makes_it_few_again() -> None:
    circuit = Circuit(most=64)
    for _ in range(3):
        await entered(circuit, 100)
        circuit.reached(begun=time.monotonic() - 2.0)
    failing(circuit, FIRST, is_unwritten=False)
    assert await entered(circuit, 100) == UNANSWERED - 1


async def test_a_window_that_is_not_needed_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = Circuit(most=64)
    for _ in range(3):
        await entered(circuit, 100)
        circuit.reached(begun=time.monotonic() - 2.0)
    now = time.monotonic()
    for n in range(3):
        monkeypatch.setattr(time, "monotonic", lambda n=n: now + 20.0 * (n + 1))
        circuit.reached(begun=FOREVER)
    assert await entered(circuit, 100) == UNANSWERED


async def test_fewer_and_fewer_begin_while_calls_fail_in_a_row() -> None:
    circuit = Circuit()
    allowed = []
    for n in range(12):
        allowed.append(await entered(circuit, 100))
        for m in range(100):
            circuit.leave(UUID(int=m + 1))
        failing(circuit, UUID(int=1000 + n), is_unwritten=False)
        circuit.take_report()
        circuit.learn(CircuitState(failing=n + 1, failing_messages=n + 1))
    assert allowed == [6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1]


async def test_no_call_begins_while_failures_are_untold() -> None:
    circuit = Circuit()
    for n in range(UNTOLD):
        assert circuit.has_room
        failing(circuit, UUID(int=n + 1))
    assert not circuit.has_room
    report = circuit.take_report()
    assert not circuit.has_room
    circuit.give_back(report)
    assert not circuit.has_room
    circuit.take_report()
    circuit.learn(CircuitState(failing=UNTOLD, failing_messages=UNTOLD))
    assert circuit.has_room


async def test_failures_of_others_let_fewer_begin_here() -> None:
    circuit = Circuit()
    circuit.learn(CircuitState(failing=4, failing_messages=4))
    assert await entered(circuit, 100) == UNANSWERED - 4


async def test_who_waits_is_let_go_at_once_when_calls_are_closed() -> None:
    """A sender that is asked to stop while SES fails must not spend its drain on calls that will not be made."""
    circuit = Circuit()
    await entered(circuit, UNANSWERED)
    waiting = asyncio.create_task(circuit.enter(UUID(int=99), patience_s=60.0))
    await asyncio.sleep(0)
    circuit.close()
    assert not await asyncio.wait_for(waiting, 1.0)
    assert not await asyncio.wait_for(circuit.enter(UUID(int=98), patience_s=60.0), 1.0)
    circuit.open()
    circuit.reached(begun=time.monotonic())
    assert await circuit.enter(UUID(int=97), patience_s=0.0)


async def test_who_waits_begins_with_the_next_answer() -> None:
    circuit = Circuit()
    await entered(circuit, UNANSWERED)
    waiting = asyncio.create_task(circuit.enter(UUID(int=99), patience_s=60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    circuit.reached(begun=FOREVER)
    assert await asyncio.wait_for(waiting, 30)


# What is told -------------------------------------------------------------------------------------------------------------


def test_nothing_is_told_at_once_while_all_is_well() -> None:
    circuit = Circuit()
    for _ in range(3):
        circuit.reached(begun=FOREVER)
    assert not circuit.has_news
    assert circuit.take_report() == REACHED
    assert circuit.take_report() == NOTHING


def test_failures_are_told_in_order_with_the_reach_before_them() -> None:
    circuit = Circuit()
    failing(circuit, FIRST)
    circuit.reached(begun=FOREVER)
    circuit.failed(SECOND, reason="no answer", is_unwritten=False)
    failing(circuit, FIRST)
    assert circuit.has_news
    assert circuit.take_report() == Report(
        reached=True, failed=(SECOND, FIRST), reason="no answer", is_unwritten=False
    )


def test_a_report_that_was_not_taken_comes_before_what_followed() -> None:
    circuit = Circuit()
    failing(circuit, FIRST)
    report = circuit.take_report()
    failing(circuit, SECOND)
    circuit.give_back(report)
    assert circuit.take_report().failed == (FIRST, SECOND)


def test_an_answer_to_a_call_from_before_does_not_close_the_circuit() -> None:
    circuit = Circuit()
    circuit.learn(OPEN)
    circuit.reached(begun=0.0)
    assert not circuit.has_news
    circuit.reached(begun=FOREVER)
    assert circuit.has_news


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        (NOTHING, REACHED, REACHED),
        (Report(failed=(FIRST,), reason="a"), REACHED, REACHED),
        (REACHED, Report(failed=(FIRST,), reason="a"), Report(reached=True, failed=(FIRST,), reason="a")),
        (
            Report(failed=(FIRST,), reason="a", is_unwritten=False),
            Report(failed=(SECOND,)),
            Report(failed=(FIRST, SECOND), reason="a", is_unwritten=False),
        ),
        (Report(unused_probe=3), REACHED, Report(reached=True, unused_probe=3)),
    ],
)  # fmt: skip
def test_reports_add_up(first: Report, second: Report, whole: Report) -> None:
    assert first.then(second) == whole


def test_readiness_says_since_when_and_why() -> None:
    circuit = Circuit("eu-central-1")
    circuit.learn(OPEN)
    why = circuit.why or ""
    assert "eu-central-1" in why
    assert "since 2023-11-14T22:13:20+00:00 (SES failed)" in why


def test_a_closed_circuit_has_no_explanation() -> None:
    assert explanation(CLOSED, "eu-central-1") is None
