"""Heartbeat keys, ages of the sweep, what the account's answer means."""

from datetime import UTC, datetime, timedelta

import pytest
from aiokafka.partitioner import murmur2

from streams.domain.heartbeats import heartbeat_keys
from streams.domain.schedule import first_id_of, sweep_ages
from streams.domain.sending_account import SendingAccount, reason_to_stop, usable_rate


@pytest.mark.parametrize("partitions", [1, 2, 3, 12, 50])
def test_each_partition_has_one_heartbeat_key(partitions: int) -> None:
    keys = heartbeat_keys(partitions)
    placed = [(murmur2(key.encode()) & 0x7FFFFFFF) % partitions for key in keys]
    assert placed == list(range(partitions))


def test_a_heartbeat_key_is_as_long_as_a_recipient_key_and_never_one() -> None:
    for key in heartbeat_keys(12):
        assert len(key) == 32
        assert key.startswith("heartbeat-")
    assert heartbeat_keys(12) == heartbeat_keys(12)


def test_a_row_is_swept_at_growing_ages() -> None:
    ages = sweep_ages(timedelta(minutes=5))
    assert ages[:3] == [timedelta(minutes=5), timedelta(minutes=20), timedelta(minutes=80)]
    assert ages[-1] <= timedelta(days=30)
    assert len(ages) == 7
    assert sweep_ages(timedelta(days=60)) == [timedelta(days=60)]


def test_the_first_id_of_a_moment_is_before_all_of_its_millisecond() -> None:
    moment = datetime(2026, 1, 15, 10, 0, 0, 123000, tzinfo=UTC)
    first = first_id_of(moment)
    assert first.int >> 80 == int(moment.timestamp() * 1000)
    assert first.int & ((1 << 80) - 1) == 0


def account(
    rate: float | None = 14.0, *, enabled: bool | None = True, status: str | None = "HEALTHY"
) -> SendingAccount:
    return SendingAccount(max_send_rate=rate, sending_enabled=enabled, enforcement_status=status)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (14.0, 13.3),
        (0.5, 0.475),
        (0.0, None),
        (-1.0, None),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
    ],
)
def test_a_rate_is_used_only_if_it_makes_sense(rate: float | None, expected: float | None) -> None:
    assert usable_rate(account(rate), factor=0.95) == (
        None if expected is None else pytest.approx(expected)
    )


@pytest.mark.parametrize(
    ("said", "stops"),
    [
        (account(), False),
        (account(status="PROBATION"), False),
        (account(status="SOMETHING_NEW"), False),
        (account(status=None, enabled=None), False),
        (account(status="SHUTDOWN"), True),
        (account(enabled=False), True),
    ],
)
def test_only_a_clear_word_stops_the_account(said: SendingAccount, *, stops: bool) -> None:
    assert (reason_to_stop(said) is not None) is stops
