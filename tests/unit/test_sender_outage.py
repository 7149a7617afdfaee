"""Calls that never left: who pays, and how long nothing is asked for."""

from uuid import UUID

from streams.sending.outage import Outage

FIRST, SECOND = UUID(int=1), UUID(int=2)


def test_one_message_alone_is_charged_each_time() -> None:
    outage = Outage()
    assert [outage.failed(FIRST) for _ in range(5)] == [True] * 5


def test_where_other_messages_fail_too_none_is_charged() -> None:
    outage = Outage()
    assert [outage.failed(m) for m in (FIRST, SECOND, FIRST, SECOND)] == [True, False, False, False]


def test_call_that_reaches_ses_ends_the_outage() -> None:
    outage = Outage()
    outage.failed(FIRST)
    outage.failed(SECOND)
    assert outage.backing_off_s > 0
    outage.ended()
    assert outage.backing_off_s == 0
    assert outage.failed(SECOND)


def test_calls_that_fail_together_make_the_wait_no_longer() -> None:
    outage = Outage()
    for n in range(50):
        outage.failed(UUID(int=n + 1))
    assert 0.5 <= outage.delay_s(1) < 1.0
    assert 13.5 <= outage.delay_s(4) < 27.0
