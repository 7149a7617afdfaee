"""Rate, quota and switches of the simulated account."""

import pytest

from streams.simulator.account import DAY_S, Account, CallLimit
from streams.simulator.refusals import RefusedError


def account(*, rate: float = 10, burst_s: float = 1, daily_quota: float = -1) -> Account:
    return Account(rate=rate, burst_s=burst_s, daily_quota=daily_quota)


def refused(target: Account, now: float, recipients: int = 1) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        target.admit(recipients=recipients, counted=recipients, now=now)
    return caught.value


def admitted(target: Account, *, calls: int, start: float, every: float) -> int:
    count = 0
    for n in range(calls):
        try:
            target.admit(recipients=1, counted=1, now=start + n * every)
        except RefusedError:
            continue
        count += 1
    return count


def test_a_steady_stream_at_the_rate_is_never_throttled() -> None:
    assert admitted(account(rate=10), calls=1000, start=5.0, every=0.1) == 1000


def test_a_burst_passes_up_to_the_bucket_then_is_throttled() -> None:
    target = account(rate=10)
    assert admitted(target, calls=25, start=0.0, every=0.0) == 10
    error = refused(target, 0.0)
    assert (error.code, error.status, error.message) == (
        "TooManyRequestsException",
        429,
        "Maximum sending rate exceeded.",
    )


def test_recipients_count_not_calls_and_an_overdraft_is_repaid() -> None:
    target = account(rate=14)
    target.admit(recipients=50, counted=50, now=0.0)
    assert refused(target, 2.6).code == "TooManyRequestsException"
    target.admit(recipients=1, counted=1, now=36 / 14 + 1 / 14 + 0.001)


def test_a_lower_rate_shrinks_the_bucket_at_once() -> None:
    target = account(rate=100)
    target.admit(recipients=1, counted=1, now=0.0)
    target.change_rate(rate=5, burst_s=1)
    assert admitted(target, calls=50, start=0.0, every=0.0) == 5


def test_the_daily_quota_rolls() -> None:
    target = account(rate=1000, daily_quota=3)
    assert admitted(target, calls=5, start=0.0, every=1.0) == 3
    error = refused(target, 10.0)
    assert (error.code, error.status, error.message) == (
        "LimitExceededException",
        400,
        "Daily message quota exceeded.",
    )
    target.admit(recipients=1, counted=1, now=DAY_S + 0.5)
    assert target.sent_last_24_hours(DAY_S + 0.5) == 3


def test_uncounted_recipients_use_the_rate_but_not_the_quota() -> None:
    target = account(rate=2, daily_quota=0)
    target.admit(recipients=1, counted=0, now=0.0)
    target.admit(recipients=1, counted=0, now=0.0)
    with pytest.raises(RefusedError) as caught:
        target.admit(recipients=1, counted=0, now=0.0)
    assert caught.value.code == "TooManyRequestsException"


def test_a_refused_call_uses_nothing_up() -> None:
    target = account(rate=1, daily_quota=10)
    target.admit(recipients=1, counted=1, now=0.0)
    for _ in range(5):
        refused(target, 0.5)
    target.admit(recipients=1, counted=1, now=1.0)
    assert target.sent_last_24_hours(1.0) == 2


def test_switches_stop_sending_each_with_its_code() -> None:
    target = account()
    target.sending_enabled = False
    assert refused(target, 0.0).code == "SendingPausedException"
    target.sending_enabled = True
    target.enforcement_status = "SHUTDOWN"
    assert refused(target, 0.0).code == "SendingPausedException"
    target.suspended = True
    assert refused(target, 0.0).code == "AccountSuspendedException"


def test_other_calls_can_be_limited() -> None:
    limit = CallLimit(per_second=2)
    limit.admit(10.0)
    with pytest.raises(RefusedError):
        limit.admit(10.4)
    limit.admit(10.5)
