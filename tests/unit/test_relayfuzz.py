"""What the fuzz of the relay calls wrong, on evidence made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from crash.report import write_parts
from relayfuzz.campaign import Goal, State
from relayfuzz.disturbing import Done
from relayfuzz.load import Known
from relayfuzz.mutations import MUTATIONS, plan_for
from relayfuzz.plan import Plan, plan
from relayfuzz.reading import SUPPRESSIONS, Copy
from relayfuzz.repeats import Closed, Session, judge_repeats
from relayfuzz.verdict import Evidence, Written, judge

KEY = "a" * 32
BULK = "outbox.bulk"
ROWS = [UUID(int=n) for n in range(10)]
SET = b'{"suppressions": [{"tenant": "*", "lane": "*", "reason": "manual", "evidence_id": "e1"}]}'
RULES = frozenset({("*", "*", "manual", "e1")})
STARTED = Session(100.0, "relay-1", False)


def copy(row: int, offset: int, *, at: float = 101.0, aggregate: str = BULK, **more: Any) -> Copy:
    """Sequence and id follow from the row."""
    value = more.pop("value", None)
    fields = {"key": KEY, "seq": row, "digest": f"d{row}", "value": value, **more}
    return Copy(aggregate, 0, offset, at, row_id=ROWS[row], **fields)


def written(row: int, aggregate: str = BULK) -> dict[UUID, Written]:
    return {ROWS[row]: Written(aggregate, KEY, row, row, f"d{row}")}


GOOD = Evidence(
    copies=[copy(1, 0), copy(2, 1), copy(3, 0, aggregate=SUPPRESSIONS, value=SET)],
    written={**written(1), **written(2), **written(3, SUPPRESSIONS)},
    known=Known(committed={ROWS[1]: 100.5, ROWS[2]: 100.6}),
    suppressions={KEY: RULES},
    sessions=[STARTED],
    disturbances=[],
)


def kinds(**changed: Any) -> set[str]:
    return {offence.kind for offence in judge(replace(GOOD, **changed)).offences}


def test_a_round_without_faults_holds() -> None:
    verdict = judge(GOOD)
    assert verdict.holds
    assert verdict.numbers["rows"] == 3


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("lost", {"written": {**GOOD.written, **written(4)}}),
        ("uncommitted", {"copies": [*GOOD.copies, copy(5, 9)]}),
        ("changed", {"copies": [copy(1, 0, digest="other"), *GOOD.copies[1:]]}),
        ("changed", {"copies": [copy(1, 0, key="b" * 32), *GOOD.copies[1:]]}),
        ("inversions", {"copies": [copy(2, 0), copy(1, 1), GOOD.copies[2]]}),
        ("last_suppression_wrong", {"suppressions": {}}),
        ("last_suppression_wrong", {"suppressions": {KEY: RULES, "b" * 32: RULES}}),
        ("not_healed", {"not_healed": frozenset({KEY})}),
        ("commits_gone", {"known": Known(committed={ROWS[7]: 100.0})}),
        ("commits_gone", {"known": Known(asynchronous={ROWS[7]: 100.0})}),
        ("commits_gone", {"known": Known(undone={ROWS[1]})}),
    ],
)
def test_each_broken_promise_has_its_name(kind: str, changed: dict[str, Any]) -> None:
    assert kinds(**changed) == {kind}


def test_a_rolled_back_row_with_a_record_is_told_as_one() -> None:
    verdict = judge(replace(GOOD, copies=[*GOOD.copies, copy(5, 9)], known=Known(undone={ROWS[5]})))
    assert "rolled back" in verdict.offences[0].words


def test_an_asynchronous_commit_may_be_gone_after_a_crash_alone() -> None:
    known = Known(asynchronous={ROWS[7]: 100.0})
    assert not kinds(known=known, disturbances=[Done("kill postgres", "postgres", 100.1, 101.0)])
    earlier = [Done("kill postgres", "postgres", 90.0, 91.0)]
    assert kinds(known=known, disturbances=earlier) == {"commits_gone"}


def test_a_late_older_record_is_no_inversion_but_must_be_healed() -> None:
    """The reader ignores it; as the very last record it is wrong."""
    lifted = copy(4, 1, aggregate=SUPPRESSIONS)
    late = copy(3, 2, aggregate=SUPPRESSIONS, value=SET, at=100.9)
    rows = {**GOOD.written, **written(4, SUPPRESSIONS)}
    changed: dict[str, Any] = {
        "copies": [*GOOD.copies, lifted, late],
        "written": rows,
        "suppressions": {},
    }
    killed = [Done("kill", "relay-1", 100.92, 100.92)]
    sessions = [STARTED, Session(100.95, "relay-1", False)]
    offences = judge(replace(GOOD, disturbances=killed, sessions=sessions, **changed)).offences
    assert [o.kind for o in offences] == ["last_suppression_wrong"]
    assert "the last record" in offences[0].words


# Repetitions ----------------------------------------------------------------------------------------------------------


def repeats(
    *times: float, sessions: list[Session], disturbances: list[Done] | None = None
) -> list[str]:
    copies = [copy(1, n, at=at) for n, at in enumerate(times)]
    found = judge_repeats(copies, sessions, disturbances or [], bound_s=0.2)
    return [beyond.words for beyond in found.beyond]


NEXT = [STARTED, Session(110.5, "relay-2", False)]
KILL = Done("kill", "relay-1", 110.0, 110.0)


def test_what_was_sent_right_before_the_kill_may_be_sent_again() -> None:
    assert repeats(109.81, 110.6, sessions=NEXT, disturbances=[KILL]) == []


def test_what_was_sent_long_before_the_kill_may_not() -> None:
    [words] = repeats(109.7, 110.6, sessions=NEXT, disturbances=[KILL])
    assert "300 ms before" in words


def test_no_more_may_be_sent_again_than_was_sent_in_the_last_moments() -> None:
    copies = [copy(1, 0, at=109.7), copy(1, 1, at=110.6), copy(2, 2, at=109.9)]
    assert not judge_repeats(copies, NEXT, [KILL], bound_s=0.2).beyond
    copies += [copy(3, 3, at=109.6), copy(3, 4, at=110.6)]
    [beyond] = judge_repeats(copies, NEXT, [KILL], bound_s=0.2).beyond
    assert beyond.repeat.earlier == 109.6


def test_a_repetition_without_any_disturbance_is_never_right() -> None:
    [words] = repeats(110.4, 110.6, sessions=NEXT)
    assert "nothing was disturbed" in words


def test_a_kill_of_the_standby_explains_nothing() -> None:
    other = Done("kill", "relay-2", 110.0, 110.0)
    assert repeats(109.9, 110.6, sessions=NEXT, disturbances=[other])


def test_disturbances_that_follow_closely_are_one() -> None:
    frozen = Done("freeze kafka", "kafka", 107.0, 109.5)
    assert repeats(107.2, 110.6, sessions=NEXT, disturbances=[frozen, KILL]) == []
    assert repeats(106.7, 110.6, sessions=NEXT, disturbances=[frozen, KILL])
    earlier = Done("freeze kafka", "kafka", 104.0, 106.5)
    assert repeats(107.2, 110.6, sessions=NEXT, disturbances=[earlier, KILL])


def test_a_session_ends_with_its_relay_whatever_happens_until_the_next_one() -> None:
    sessions = [STARTED, Session(116.0, "relay-2", False)]
    later = Done("cut", "relay-1", 114.0, 114.5)
    assert repeats(109.9, 116.1, sessions=sessions, disturbances=[KILL, later]) == []
    copies = [copy(1, n, at=at) for n, at in enumerate((109.9, 116.1))]
    cut = Done("cut", "relay-1", 110.0, 110.1)
    given_up = [Closed(110.2, "relay-1")]
    found = judge_repeats(copies, sessions, [cut, later], closed=given_up, bound_s=0.2)
    assert not found.beyond
    assert judge_repeats(copies, sessions, [cut, later], bound_s=0.2).beyond


def test_relays_that_write_at_the_same_time_are_seen() -> None:
    [words] = repeats(115.0, 115.1, sessions=NEXT, disturbances=[KILL])
    assert "at the same time" in words


def test_a_relay_that_wakes_up_may_write_what_it_had_read() -> None:
    frozen = Done("freeze", "relay-1", 110.0, 122.0)
    sessions = [STARTED, Session(120.5, "relay-2", False)]
    assert repeats(120.6, 122.1, sessions=sessions, disturbances=[frozen]) == []
    assert repeats(120.6, 126.0, sessions=sessions, disturbances=[frozen])


def test_what_a_lost_slot_repeats_is_counted_apart() -> None:
    sessions = [STARTED, Session(110.5, "relay-2", True)]
    copies = [copy(1, 0, at=101.0), copy(1, 1, at=110.6)]
    found = judge_repeats(copies, sessions, [], bound_s=0.2)
    assert (found.all, found.of_recoveries, found.beyond) == (1, 1, [])


# Plans, counts, the page ----------------------------------------------------------------------------------------------


def test_a_round_follows_from_its_seed_and_number() -> None:
    first, again = (plan(5, 3, disturbances=30, lasting_s=40) for _ in range(2))
    assert first == again
    assert first != plan(5, 4, disturbances=30, lasting_s=40)
    assert plan_for("no-replay", seed=1, number=0) == plan_for("no-replay", seed=1, number=0)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    chosen = plan(5, 3, disturbances=30, lasting_s=40, mode="poll")
    chosen.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == chosen


def test_every_mutation_disturbs() -> None:
    assert all(plan_for(name, seed=1, number=0).disturbances for name in MUTATIONS)


def test_counts_add_up_over_runs(tmp_path: Path) -> None:
    state = State(seed=4, kills=30, cuts=20, next_round=2)
    state.counts["kill relay"] = 30
    state.write(tmp_path)
    assert State.read(tmp_path) == state
    assert State.read(tmp_path / "elsewhere") is None
    assert Goal(kills=50).reached(state)
    assert not Goal(kills=51).reached(state)
    assert Goal(kills=60).next_round(state).number == 2


def test_parts_of_the_page_survive_each_other(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    write_parts(page, {"relay": "relay\n", "later": "unknown to this version\n"})
    write_parts(page, {"campaign": "campaign\n"})
    write_parts(page, {"relay": "relay again\n"})
    text = page.read_text()
    assert text.index("campaign\n") < text.index("relay again\n") < text.index("unknown to this")
    assert "relay\n<" not in text
