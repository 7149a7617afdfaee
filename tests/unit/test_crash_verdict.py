"""What the crash harness calls wrong, on evidence made by hand."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crash.campaign import State
from crash.scenario import Disturbance, Scenario, disturbances_of
from crash.shrinking import shrink
from crash.verdict import (
    Attempt,
    Call,
    Change,
    Evidence,
    Row,
    Snapshot,
    Suppressed,
    judge,
    read_journal,
)

ROW = Row("submitted", None, "key-1", "k" * 32, "shop", "transactional")
CLAIM = Change(10.0, 7, "mailstreams sender", "row-1", "pending", "sending", None, "a-1", None, "5:8:6")  # fmt: skip
SENT = Change(10.2, 8, "mailstreams sender", "row-1", "sending", "submitted", "a-1", None, None, None)  # fmt: skip
TOLD = Attempt(outbox_id="row-1", worker="sender-1", told=["accepted"], called=["ok"])
GOOD = Evidence(
    rows={"row-1": ROW},
    committed=frozenset({"row-1"}),
    doubtful_keys=frozenset(),
    undone_keys=frozenset(),
    calls=[Call("row-1", "a-1", ("k" * 32,), 10.1)],
    changes=[CLAIM, SENT],
    suppressions=[],
    attempts={"a-1": TOLD},
    facts_wrong=(),
    lease_s=7.5,
)


def kinds(**changed: Any) -> set[str]:
    return {offence.kind for offence in judge(replace(GOOD, **changed)).offences}


def suppressed(xid: int, *, made: bool = True, tenant: str = "*") -> Suppressed:
    return Suppressed(xid, made, "k" * 32, tenant, "*", "manual")


def test_a_round_without_faults_holds() -> None:
    verdict = judge(GOOD)
    assert verdict.holds
    assert verdict.numbers["messages"] == 1


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("lost", {"committed": frozenset({"row-1", "row-2"})}),
        ("lost", {"calls": []}),
        ("lost", {"rows": {"row-1": ROW._replace(state="suppressed")}}),
        ("lost", {"rows": {"row-1": ROW._replace(state="failed")}}),
        ("sent_twice", {"calls": [*GOOD.calls, Call("row-1", "a-2", (), 11.0)]}),
        ("sent_uncommitted", {"undone_keys": frozenset({"key-1"})}),
        ("sent_uncommitted", {"calls": [*GOOD.calls, Call("row-9", "a-9", (), 11.0)]}),
        ("pending_at_end", {"rows": {"row-1": ROW._replace(state="pending")}}),
        ("pending_at_end", {"rows": {"row-1": ROW._replace(state="sending")}}),
        ("ambiguous_at_end", {"rows": {"row-1": ROW._replace(state="ambiguous")}}),
        ("facts_wrong", {"facts_wrong": ("a fact is missing",)}),
        ("sent_to_suppressed", {"suppressions": [suppressed(4)]}),
        ("stale_writes", {"attempts": {"a-1": Attempt(told=["released"])}}),
        ("stale_writes", {"attempts": {}}),
        ("stale_writes", {"changes": [CLAIM, SENT._replace(was="ambiguous", token=None)]}),
    ],
)
def test_each_broken_promise_is_called_by_its_name(kind: str, changed: Mapping[str, Any]) -> None:
    assert kind in kinds(**changed)


@pytest.mark.parametrize(
    ("flag", "kind"),
    [("loading", "called_before_caught_up"), ("known", "called_although_known"), ("gone", None)],
)
def test_what_the_table_said_before_the_call_counts(flag: str, kind: str | None) -> None:
    attempt = Attempt(outbox_id="row-1", told=["accepted"], called=[flag])
    assert kinds(attempts={"a-1": attempt}) == ({kind} if kind else set())


@pytest.mark.parametrize(
    "log",
    [
        [suppressed(6)],  # was running when the claim looked
        [suppressed(9)],  # came later
        [suppressed(4), suppressed(4, made=False)],
        [suppressed(4, tenant="another")],
    ],
)
def test_a_suppression_that_the_claim_could_not_see_or_that_concerns_others_is_no_offence(
    log: list[Suppressed],
) -> None:
    assert kinds(suppressions=log) == set()


def test_a_lease_that_runs_out_in_time_is_no_stale_write_but_has_to_have_a_cause() -> None:
    expired = Change(18.0, 9, "mailstreams scheduler", "row-1", "sending", "ambiguous", "a-1", None, None, None)  # fmt: skip
    settled = expired._replace(at=19.0, was="ambiguous", state="submitted", token=None)
    changes = [CLAIM, expired, settled]
    died = Attempt(outbox_id="row-1", worker="sender-1", died=True)
    assert kinds(changes=changes, attempts={"a-1": died}) == set()
    lived = replace(died, died=False)
    assert kinds(changes=changes, attempts={"a-1": lived}) == {"ambiguous_unexplained"}
    early = [CLAIM, expired._replace(at=12.0), settled]
    assert "stale_writes" in kinds(changes=early, attempts={"a-1": died})


def test_more_than_fifty_unknowns_in_an_outage_are_too_many() -> None:
    def changes(count: int) -> list[Change]:
        made = [CLAIM, SENT]
        for n in range(count):
            token, row = f"o-{n}", f"out-{n}"
            made.append(CLAIM._replace(outbox_id=row, next_token=token, at=100.0))
            made.append(SENT._replace(outbox_id=row, token=token, state="ambiguous", at=101.0))
        return made

    attempts = {f"o-{n}": Attempt(told=["unknown"]) for n in range(51)} | {"a-1": TOLD}
    for count, found in ((50, set()), (51, {"unknown_in_outage"})):
        assert kinds(changes=changes(count), attempts=attempts, outages=((99.0, 105.0),)) == found


def test_snapshots_are_read_as_postgresql_writes_them() -> None:
    seen = Snapshot.read("6:9:6,7")
    assert [xid for xid in range(4, 10) if seen.shows(xid)] == [4, 5, 8]
    assert Snapshot.read("5:5:").shows(4)


def test_what_a_worker_had_not_told_when_it_was_started_anew_died_with_it() -> None:
    lines = [
        "start 1.0 11",
        "claim 2.0 a-1 row-1",
        "claim 2.0 a-2 row-2",
        "tell 3.0 a-1 accepted",
        "told 3.1 a-1 applied",
        "start 4.0 12",
        "tell 5.0 a-2 released",
    ]
    found: dict[str, Attempt] = {}
    read_journal("sender-1", (line.split(" ") for line in lines), found)
    assert not found["a-1"].died
    assert found["a-2"].died
    assert found["a-2"].told == ["released"]


def test_a_seed_always_gives_the_same_round() -> None:
    def made(seed: int) -> tuple[Any, Any]:
        scenario = Scenario(seed=seed, number=3, messages=200, per_second=50.0)
        return scenario.load(), disturbances_of(seed, 3, kills=20, lasting_s=scenario.lasting_s)

    assert made(1) == made(1)
    assert made(1) != made(2)


async def test_a_failure_shrinks_to_the_disturbances_that_cause_it() -> None:
    culprits = {3, 11}
    many = [Disturbance(at=float(n), do="kill", who="sender-1", times=n + 1) for n in range(16)]
    scenario = Scenario(seed=1, number=0, messages=1600, per_second=100.0)

    async def fails(tried: Scenario) -> bool:
        return culprits <= {d.times - 1 for d in tried.disturbances}

    short = await shrink(scenario.with_disturbances(many), fails, tries=60)
    assert {d.times - 1 for d in short.disturbances} == culprits
    assert short.messages == 1600  # with half of them there is no time for the later one


async def test_shrinking_stops_when_its_tries_are_used_up() -> None:
    tried = 0

    async def fails(_: Scenario) -> bool:
        nonlocal tried
        tried += 1
        return False

    many = [Disturbance(at=float(n), do="kill", who="sender-1") for n in range(50)]
    scenario = Scenario(seed=1, number=0, messages=10_000, per_second=100.0)
    assert await shrink(scenario.with_disturbances(many), fails, tries=7) is not None
    assert tried == 7


def test_counts_add_up_over_runs_in_a_folder(tmp_path: Path) -> None:
    assert State.read(tmp_path) is None
    state = State(seed=3, kills=7, next_round=2)
    state.numbers["messages"] = 100
    state.points["sender: after claim"] = 5
    state.commits["0123456789ab"] = 7
    state.write(tmp_path)
    assert State.read(tmp_path) == state
