"""What `mailstreams status` says of what it was told."""

import pytest

from streams.domain.overview import (
    Lag,
    Level,
    Line,
    Polling,
    Rate,
    RelaySlot,
    Waiting,
    judge_backlog,
    judge_lags,
    judge_pending,
    judge_polling,
    judge_rates,
    judge_slot,
    judge_suppressions,
    span,
    unseen,
    verdict,
)
from streams.domain.schedule import Backlog
from streams.domain.topics import Lane

QUIET = Waiting(
    overdue={}, oldest_due={}, oldest_ambiguous=None, oldest_dead_letter=None, refused_by_relay=0
)


def rate(*, read_age: float = 30.0, open_age: float | None = None) -> Rate:
    return Rate(
        scope="eu-central-1",
        per_second=14,
        read_age=read_age,
        failing=0,
        failing_reason=None,
        open_age=open_age,
        probe_in=None if open_age is None else 5.0,
    )


def slot(
    *,
    active: bool = True,
    wal_status: str = "reserved",
    lag_bytes: int = 0,
    kept_share: float = 0.0,
) -> RelaySlot:
    return RelaySlot(
        active=active,
        wal_status=wal_status,
        lag_bytes=lag_bytes,
        kept_share=kept_share,
        checkpoint_age=90.0,
    )


def backlog(*, ambiguous: int = 0, heartbeat_age: float | None = 1.0) -> Backlog:
    return Backlog(
        due=0,
        leases=3,
        ambiguous=ambiguous,
        held=0,
        dead_letters=0,
        possible_duplicates=2,
        proven_duplicates=1,
        heartbeat_age=heartbeat_age,
    )


def levels(lines: list[Line]) -> dict[str, Level]:
    return {line.part: line.level for line in lines}


def test_healthy_is_when_every_part_was_seen_and_is_well() -> None:
    lines = [*judge_backlog(backlog(), QUIET), *judge_rates([rate()]), judge_slot(slot(), "s")]
    assert verdict(lines) is Level.OK
    assert verdict([*lines, unseen("lag", "Kafka is away")]) is Level.ATTENTION


@pytest.mark.parametrize(
    ("lane", "age", "level"),
    [
        (Lane.TRANSACTIONAL, 59, Level.OK),
        (Lane.TRANSACTIONAL, 61, Level.ATTENTION),
        (Lane.BULK, 899, Level.OK),
        (Lane.BULK, 901, Level.ATTENTION),
        (Lane.BULK, None, Level.OK),
    ],
)
def test_bulk_may_wait_longer(lane: Lane, age: float | None, level: Level) -> None:
    assert judge_pending(lane, age, QUIET).level is level


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, "there is no slot s"),
        (slot(wal_status="lost"), "lost"),
        (slot(active=False), "nobody reads the slot"),
        (slot(lag_bytes=2**30), "1024.0 MiB behind"),
        (slot(kept_share=0.6), "60% of max_slot_wal_keep_size"),
    ],
)
def test_a_slot_that_wants_attention(found: RelaySlot | None, told: str) -> None:
    line = judge_slot(found, "s")
    assert line.level is Level.ATTENTION
    assert told in line.told


@pytest.mark.parametrize(
    ("polling", "level"),
    [
        (Polling(shards=4, held=4, oldest_age=None), Level.OK),
        (Polling(shards=4, held=4, oldest_age=5.0), Level.OK),
        (Polling(shards=4, held=4, oldest_age=90.0), Level.ATTENTION),
        (Polling(shards=4, held=3, oldest_age=None), Level.ATTENTION),
        (Polling(shards=0, held=0, oldest_age=None), Level.ATTENTION),
    ],
)
def test_every_share_of_the_keys_is_polled(polling: Polling, level: Level) -> None:
    assert judge_polling(polling).level is level


def test_no_rate_an_old_one_and_an_open_circuit_want_attention() -> None:
    assert levels(judge_rates([])) == {"rate": Level.ATTENTION}
    assert levels(judge_rates([rate(read_age=600)]))["rate"] is Level.ATTENTION
    assert levels(judge_rates([rate(open_age=60)]))["circuit"] is Level.ATTENTION


def test_unknown_outcomes_are_given_time_to_settle() -> None:
    for age, level in ((60.0, Level.OK), (3600.0, Level.ATTENTION)):
        waiting = Waiting(
            overdue={},
            oldest_due={},
            oldest_ambiguous=age,
            oldest_dead_letter=None,
            refused_by_relay=0,
        )
        assert levels(judge_backlog(backlog(ambiguous=2), waiting))["ambiguous"] is level


@pytest.mark.parametrize("age", [None, 16.0])
def test_a_scheduler_that_is_silent_wants_attention(age: float | None) -> None:
    found = levels(judge_backlog(backlog(heartbeat_age=age), QUIET))
    assert found["scheduler"] is Level.ATTENTION


def test_a_consumer_is_behind_by_age_and_not_by_number() -> None:
    many = Lag(group="g", topic="t", records=10**6, age=2.0)
    old = Lag(group="g", topic="t", records=1, age=90.0)
    unknown = Lag(group="g", topic="t", records=1, age=None)
    found = [line.level for line in judge_lags([many, old, unknown])]
    assert found == [Level.OK, Level.ATTENTION, Level.ATTENTION]


@pytest.mark.parametrize(
    ("ages", "level"),
    [
        ({0: 1.0, 1: 2.0}, Level.OK),
        ({0: 1.0, 1: 31.0}, Level.ATTENTION),
        ({0: 1.0, 1: None}, Level.ATTENTION),
        ({}, Level.ATTENTION),
    ],
)
def test_suppressions_are_as_fresh_as_their_oldest_partition(
    ages: dict[int, float | None], level: Level
) -> None:
    assert judge_suppressions(ages, bound_s=30).level is level


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_a_span_is_told_in_one_unit(seconds: float, told: str) -> None:
    assert span(seconds) == told
