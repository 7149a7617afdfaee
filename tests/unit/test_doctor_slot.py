"""The doctor's rules on publication and slot: usable, read, kept in bounds, ready for a failover, and who is at work."""

from dataclasses import replace
from typing import Any

import pytest

from streams.domain.diagnosis import Finding, Level
from streams.domain.diagnosis_slot import (
    Publication,
    Slot,
    Surroundings,
    Working,
    judge_publication,
    judge_slot,
    judge_working,
)

GB = 1_000_000_000
SLOT = Slot(
    name="relay",
    plugin="pgoutput",
    here=True,
    wal_status="reserved",
    invalidation_reason=None,
    active_pid=42,
    holder="mailstreams relay",
    inactive_s=None,
    retained_bytes=1000,
    failover=None,
)
AROUND = Surroundings(
    version=150_018,
    keep_bytes=10 * GB,
    standbys=0,
    synchronized_standby_slots=None,
    disk_free=None,
    idle_timeout=None,
)


def levels(findings: list[Finding]) -> dict[str, str]:
    return {f.id: str(f.level) for f in findings if f.level is not Level.OK}


def judged(
    slot: Slot | None, around: Surroundings = AROUND, *, relay_was_here: bool = True
) -> dict[str, str]:
    return levels(judge_slot(slot, "relay", around, relay_was_here=relay_was_here))


def test_a_slot_that_a_relay_reads_is_right() -> None:
    assert judged(SLOT) == {}


def test_a_missing_slot_is_an_error() -> None:
    assert judged(None) == {"slot.exists": "error"}


@pytest.mark.parametrize(
    ("wrong", "id_", "level"),
    [
        ({"plugin": "wal2json"}, "slot.usable", "error"),
        ({"plugin": None}, "slot.usable", "error"),
        ({"here": False}, "slot.usable", "error"),
        ({"wal_status": "lost"}, "slot.usable", "error"),
        ({"wal_status": "unreserved"}, "slot.usable", "error"),
        ({"invalidation_reason": "idle_timeout"}, "slot.usable", "error"),
        ({"active_pid": None, "holder": None}, "slot.holder", "error"),
        ({"holder": "debezium"}, "slot.holder", "warning"),
        ({"retained_bytes": 5 * GB - 1}, "slot.retention", None),
        ({"retained_bytes": 5 * GB}, "slot.retention", "warning"),
        ({"retained_bytes": 8 * GB}, "slot.retention", "error"),
    ],
)
def test_a_slot_that_is_not_as_needed_is_told(
    wrong: dict[str, Any], id_: str, level: str | None
) -> None:
    assert judged(replace(SLOT, **wrong)) == ({} if level is None else {id_: level})


def test_a_slot_that_nobody_reads_before_the_first_relay_is_a_warning() -> None:
    unread = replace(SLOT, active_pid=None, holder=None)
    assert judged(unread, relay_was_here=False) == {"slot.holder": "warning"}


@pytest.mark.parametrize(("timeout", "right"), [("0", True), ("1d", False)])
def test_a_server_that_invalidates_slots_nobody_reads_is_told(timeout: str, right: bool) -> None:
    found = judged(SLOT, replace(AROUND, idle_timeout=timeout))
    assert found == ({} if right else {"slot.idle-timeout": "warning"})


@pytest.mark.parametrize(
    ("retained", "free", "level"),
    [(1000, None, "warning"), (11 * GB, None, "error"), (8 * GB, GB, "error"), (GB, GB, "warning")],
)
def test_without_a_limit_a_slot_is_measured_by_the_disk(
    retained: int, free: int | None, level: str
) -> None:
    around = replace(AROUND, keep_bytes=None, disk_free=free)
    assert judged(replace(SLOT, retained_bytes=retained), around) == {"slot.retention": level}


@pytest.mark.parametrize(
    ("version", "failover", "standby_slots", "right"),
    [
        (160_004, None, None, False),
        (170_002, False, "standby", False),
        (170_002, True, "", False),
        (170_002, True, "standby", True),
    ],
)
def test_with_a_standby_the_slot_has_to_survive_a_failover(
    version: int, failover: bool | None, standby_slots: str | None, right: bool
) -> None:
    around = replace(AROUND, version=version, standbys=1, synchronized_standby_slots=standby_slots)
    assert judged(replace(SLOT, failover=failover), around) == (
        {} if right else {"slot.failover": "warning"}
    )


@pytest.mark.parametrize(
    ("publication", "found"),
    [
        (Publication(exists=True, publishes_feed=True, younger=False), {}),
        (Publication(exists=True, publishes_feed=True, younger=None), {}),
        (
            Publication(exists=False, publishes_feed=False, younger=None),
            {"publication.feed": "error"},
        ),
        (
            Publication(exists=True, publishes_feed=False, younger=False),
            {"publication.feed": "error"},
        ),
        (
            Publication(exists=True, publishes_feed=True, younger=True),
            {"publication.age": "warning"},
        ),
    ],
)
def test_a_publication_that_is_not_as_needed_is_told(
    publication: Publication, found: dict[str, str]
) -> None:
    assert levels(judge_publication(publication)) == found


@pytest.mark.parametrize(
    ("checkpoint", "heartbeat", "found"),
    [
        (5.0, -0.5, {}),
        (61.0, 1.0, {"relay.checkpoint": "error"}),
        (5.0, 20.0, {"scheduler.heartbeat": "error"}),
        (None, None, {"relay.checkpoint": "warning", "scheduler.heartbeat": "warning"}),
    ],
)
def test_who_was_at_work_and_is_not_is_an_error(
    checkpoint: float | None, heartbeat: float | None, found: dict[str, str]
) -> None:
    working = Working(checkpoint_age_s=checkpoint, heartbeat_age_s=heartbeat)
    assert levels(judge_working(working)) == found
