"""What a slot is worth: usable, held by somebody, or lost with the rows it has passed."""

from typing import Any

import pytest

from streams.domain.acknowledgement import NOWHERE, Lsn
from streams.domain.errors import Misconfigured
from streams.domain.slots import Checkpoint, Cluster, Held, Lost, Slot, Usable, judge

HERE = Cluster(system_id="1", timeline=1)


def slot(**changes: Any) -> Slot:
    values: dict[str, Any] = {
        "plugin": "pgoutput",
        "here": True,
        "active_pid": None,
        "wal_status": "reserved",
        "confirmed": Lsn(100),
        "lag_bytes": 0,
        "safe_wal_size": None,
    }
    return Slot(**values | changes)


def checkpoint(lsn: int, cluster: Cluster = HERE) -> Checkpoint:
    return Checkpoint(lsn=Lsn(lsn), cluster=cluster)


@pytest.mark.parametrize(
    ("stored", "start"), [(None, 100), (checkpoint(100), 100), (checkpoint(500), 500)]
)
def test_a_slot_that_is_not_beyond_the_stored_position_is_usable_from_there_on(
    stored: Checkpoint | None, start: int
) -> None:
    """It goes back when the server is killed; what was acknowledged is not sent again for it."""
    assert judge(slot(), stored, HERE) == Usable(confirmed=Lsn(100), start=Lsn(start))


@pytest.mark.parametrize("stored", [100, 500])
def test_a_slot_of_another_timeline_is_usable_from_where_it_stands(stored: int) -> None:
    """A position of another history says nothing of this one."""
    later = Cluster(system_id="1", timeline=2)
    usable = Usable(confirmed=Lsn(100), start=Lsn(100))
    assert judge(slot(), checkpoint(stored), later) == usable


@pytest.mark.parametrize(
    ("found", "stored", "why"),
    [
        (None, checkpoint(100), "does not exist"),
        (None, None, "does not exist"),
        (slot(wal_status="lost"), checkpoint(100), "invalidated"),
        (slot(), checkpoint(99), "moved to 0/64 by somebody else"),
        (slot(), checkpoint(NOWHERE), "recovery did not finish"),
        (slot(), checkpoint(100, Cluster(system_id="2", timeline=1)), "another cluster"),
    ],
)
def test_a_slot_that_may_have_passed_rows_is_lost(
    found: Slot | None, stored: Checkpoint | None, why: str
) -> None:
    verdict = judge(found, stored, HERE)
    assert isinstance(verdict, Lost)
    assert why in verdict.why


@pytest.mark.parametrize(
    "found", [slot(active_pid=5), slot(active_pid=5, wal_status="lost"), slot(confirmed=None)]
)
def test_a_slot_in_use_is_waited_for_whatever_its_state(found: Slot) -> None:
    assert isinstance(judge(found, checkpoint(1), HERE), Held)


@pytest.mark.parametrize("found", [slot(plugin="wal2json"), slot(here=False), slot(plugin=None)])
def test_a_slot_of_something_else_is_misconfigured(found: Slot) -> None:
    with pytest.raises(Misconfigured, match="MAILSTREAMS_RELAY_SLOT"):
        judge(found, None, HERE)


@pytest.mark.parametrize(
    ("retained", "keep", "share"),
    [(500, 1000, 0.5), (500, None, 0.0), (1500, 1000, 1.5), (0, 0, 1.0)],
)
def test_the_share_of_what_a_slot_may_keep_is_known_where_there_is_a_limit(
    retained: int, keep: int | None, share: float
) -> None:
    assert slot(retained_bytes=retained, keep_bytes=keep).kept_share == share
