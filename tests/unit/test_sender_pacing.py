"""Slots on our clock, and how much to ask for."""

import pytest

from streams.domain.backoff import throttle_delay_s, unreachable_delay_s
from streams.domain.pacing import LATENESS_S, Allowance, Grant, Pace, ServerClock, Slot, Terms

SERVER = 1_000_000.0


def clock(*, asked_at: float = 10.0, answered_at: float = 10.02) -> ServerClock:
    found = ServerClock()
    found.observe(asked_at=asked_at, server_now=SERVER, answered_at=answered_at)
    return found


def grant(
    messages: int, permits: float, *, start_s: float = 0.0, per_second: float = 10.0
) -> Grant:
    return Grant(
        messages=messages,
        permits=permits,
        server_now=SERVER,
        start_at=SERVER + start_s,
        per_second=per_second,
        wait_s=0.0,
    )


def slots(
    given: Grant, server: ServerClock, recipients: list[int], lateness_s: float = LATENESS_S
) -> list[Slot]:
    terms = Terms(lateness_s=lateness_s)
    return Allowance(grant=given, clock=server, terms=terms).slots(recipients)


def test_slot_begins_after_the_answer_and_ends_counted_from_the_question() -> None:
    [first, second] = slots(grant(2, 2, start_s=0.1), clock(), [1, 1])
    assert first.earliest == pytest.approx(10.12)
    assert first.latest == pytest.approx(10.1 + LATENESS_S)
    assert second.earliest == pytest.approx(10.22)


def test_message_of_many_recipients_takes_their_time() -> None:
    found = slots(grant(3, 12), clock(), [1, 10, 1])
    begins = [slot.earliest - found[0].earliest for slot in found]
    assert begins == pytest.approx([0.0, 0.1, 1.1])


def test_never_more_slots_than_granted_messages_or_recipients() -> None:
    assert len(slots(grant(2, 2), clock(), [1, 1, 1])) == 2
    assert len(slots(grant(3, 3), clock(), [1, 5, 1])) == 1
    assert slots(grant(0, 0), clock(), [1]) == []


def test_slow_answer_makes_the_slot_impossible_not_late() -> None:
    [slot] = slots(grant(1, 1), clock(answered_at=15.0), [1])
    assert slot.earliest > slot.latest


def test_quick_answer_keeps_narrowing_what_a_slow_one_says() -> None:
    found = clock(asked_at=10.0, answered_at=10.002)
    found.observe(asked_at=20.0, server_now=SERVER + 10.001, answered_at=21.0)
    [slot] = slots(grant(1, 1, start_s=11.5), found, [1])
    assert slot.earliest == pytest.approx(21.502, abs=0.004)
    assert slot.latest - LATENESS_S == pytest.approx(21.5, abs=0.004)


def test_clock_that_was_set_is_learned_anew() -> None:
    found = clock()
    found.observe(asked_at=20.0, server_now=SERVER + 3600, answered_at=20.01)
    assert found.begin(SERVER + 3600) == pytest.approx(20.01)
    assert found.end(SERVER + 3600) == pytest.approx(20.0)


@pytest.mark.parametrize("lateness_s", [LATENESS_S, 0.2, 1.0])
def test_calls_that_use_all_their_lateness_stay_within_the_margin(lateness_s: float) -> None:
    """95 % of the rate: in any second at most the rate itself, however late calls may be."""
    given, clock_ = grant(400, 1000, per_second=0.95 * 100), clock(answered_at=10.0)
    found = slots(given, clock_, [1] * 400, lateness_s)
    late = [s.latest if n % 2 else s.earliest for n, s in enumerate(found)]
    late += [s.latest for s in found[:200]] + [s.earliest for s in found[200:]]
    for begin in late[:400]:
        assert sum(begin <= at < begin + 1 for at in late[:400]) <= 100
    for begin in late[400:]:
        assert sum(begin <= at < begin + 1 for at in late[400:]) <= 100


def test_size_grows_while_slots_are_met_and_halves_once_when_many_are_missed() -> None:
    pace = Pace(64)
    for _ in range(16):
        pace.met()
    assert pace.size == 32
    for n in range(20):
        pace.missed(100.0 + n / 1000)
    assert pace.size == 16
    pace.missed(101.0)
    assert pace.size == 8
    assert pace.terms.lateness_s == pytest.approx(4 * LATENESS_S)
    for _ in range(1000):
        pace.met()
    assert (pace.size, pace.terms.lateness_s) == (64, LATENESS_S)
    for n in range(100):
        pace.missed(200.0 + n)
    assert (pace.size, pace.terms.lateness_s) == (1, 1.0)


def test_lateness_is_paid_for() -> None:
    assert Terms(lateness_s=LATENESS_S).cost(4) == 4.0
    assert Terms(lateness_s=1.0).cost(1) == pytest.approx(2 / 1.05)


def test_lead_rises_at_once_and_falls_slowly() -> None:
    pace = Pace(64)
    pace.prepared(0.2)
    assert pace.lead_s == pytest.approx(0.2)
    pace.prepared(0.0)
    assert pace.lead_s == pytest.approx(0.16)
    pace.prepared(99.0)
    assert pace.lead_s == 1.0


@pytest.mark.parametrize(
    ("in_a_row", "least", "most"), [(1, 0.5, 1.0), (2, 1.5, 3.0), (4, 13.5, 27.0), (9, 30.0, 60.0)]
)
def test_wait_for_an_unreachable_endpoint_grows_with_jitter(
    in_a_row: int, least: float, most: float
) -> None:
    assert unreachable_delay_s(in_a_row, 0.0) == least
    assert least < unreachable_delay_s(in_a_row, 0.999) < most


def test_five_attempts_of_one_message_outlast_a_short_outage_and_end_within_a_minute() -> None:
    for random, least, most in ((0.0, 20, 60), (0.999, 20, 60)):
        assert least <= sum(unreachable_delay_s(n, random) for n in range(1, 5)) <= most


def test_server_s_clock_is_known_from_its_answers() -> None:
    assert ServerClock().now(10.0) is None
    assert clock(asked_at=10.0, answered_at=10.02).now(15.01) == pytest.approx(SERVER + 5.0)


def test_delays_have_a_bound() -> None:
    assert unreachable_delay_s(1000, 0.999) < 60.0
    assert throttle_delay_s(1000, 0.999) < 10.0
    assert throttle_delay_s(1, 0.0) == 0.25
