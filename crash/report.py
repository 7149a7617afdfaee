"""docs/proof.md: what was done to the system and what came of it, written by the harness alone."""

import os
import platform
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from crash.campaign import State, commit_of_code
from crash.focus import Found
from crash.mutations import MUTATIONS
from crash.system import LEASE_S, SIGNATURE_S
from devservers.jars import kafka_version, locked_jars

_HEAD: Final = """# Proof: what was killed, and what came of it

`make crash` runs every stage as processes of their own, several of most, on real PostgreSQL and Kafka with the simulator in the place
of SES and SNS. An application commits mail, suppresses recipients, cancels and rolls back; meanwhile workers are killed, frozen and
ended, at random moments and at named points before and after each durable step; connections are cut; servers are killed and frozen;
SES loses 5 % of its answers. After each round everything is left alone until it is quiet, and then judged by the ledger of what SES
took, the tables, a record of every change of state with the snapshot of each claim, and what each worker noted.

The policy is `hold`: nothing whose outcome is unknown is sent again. What SES surely never took is settled by hand, by the function
behind `mailstreams ambiguous settle`, once no request of that attempt can be accepted any more.

This page is written by `python -m crash --report`, the parts on the relay by `python -m relayfuzz --report`; nothing in it is typed by hand.
"""
_ORDER: Final = ("campaign", "mutations", "relay", "relay-poll", "relay-mutations")
_PART: Final = re.compile(r"^<!-- ([a-z-]+) -->\n(.*?)^<!-- /\1 -->\n", re.MULTILINE | re.DOTALL)
_MEANING: Final = {
    "lost": "committed and not there at the end, or at an end that nothing justifies",
    "sent_twice": "taken by SES more than once",
    "sent_to_suppressed": "taken by SES although the claim's own snapshot shows the suppression",
    "stale_writes": "a change of state by somebody without the token of the attempt",
    "pending_at_end": "still waiting when nothing moved any more",
    "ambiguous_at_end": "still of unknown outcome after all events had come",
    "sent_uncommitted": "rows or mail that nobody committed",
    "facts_wrong": "facts of SES that are missing, doubled or folded wrongly",
    "ambiguous_unexplained": "leases that ran out although their worker lived and could tell",
    "called_before_caught_up": "calls made while the suppressions of the partition were not read",
    "called_although_known": "calls begun although the table in memory knew the suppression",
    "unknown_in_outage": "outages of SES in which more than 50 rows became ambiguous",
}


def write_report(
    path: Path, *, campaign: State | None = None, mutations: Sequence[Found] | None = None
) -> None:
    """Writes the parts that are given; the others stay as they are."""
    parts: dict[str, str] = {}
    if campaign is not None:
        parts["campaign"] = _campaign(campaign)
    if mutations is not None:
        parts["mutations"] = _mutations(mutations)
    write_parts(path, parts)


def write_parts(path: Path, changed: Mapping[str, str]) -> None:
    """Writes these parts into the page, whoever's they are; those of others stay as they are."""
    parts = _parts_of(path) | dict(changed)
    names = [*(n for n in _ORDER if n in parts), *sorted(parts.keys() - set(_ORDER))]
    text = [_HEAD, *(f"<!-- {name} -->\n{parts[name]}<!-- /{name} -->\n" for name in names)]
    path.write_text("\n".join(text), encoding="utf-8")


def _parts_of(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    return dict(_PART.findall(path.read_text(encoding="utf-8")))


def where() -> str:
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, Kafka {kafka_version(locked_jars())}, "
        f"{os.cpu_count()} processors for everything together"
    )


def _campaign(state: State) -> str:
    numbers = state.numbers
    commits = ", ".join(f"{commit} ({kills} kills)" for commit, kills in state.commits.items())
    verdict = "Every promise held." if state.holds else f"Broken in rounds {state.failed_rounds}."
    rows = [(name, numbers[name], words) for name, words in _MEANING.items()]
    lines = [
        f"## {state.kills:,} kills over {numbers['messages']:,} messages\n",
        (
            f"{verdict} {where()}. Commits: {commits}. Seed {state.seed}, {state.next_round} rounds, {state.seconds / 60:.0f} minutes. "
            f"Leases {LEASE_S:g} s, signatures good for {SIGNATURE_S:g} s.\n"
        ),
        table(("what must not be", "count", "meaning"), rows),
        (
            f"Ambiguous meanwhile: {numbers['ambiguous_ever']:,} rows. {numbers['in_flight_at_kills']:,} attempts were open when their worker "
            f"was killed, and {numbers['unknown_answers']:,} calls ended without a usable answer. Settled by hand as never taken: "
            f"{numbers['settled_by_hand']:,}; all others by events or by what a worker knew. Outcomes that came too late and were refused: "
            f"{numbers['stale_refused']:,}.\n"
        ),
        "### By fault\n",
        table(("fault", "count"), sorted(state.counts.items())),
        "### Kills by point\n",
        _by_stage(state.points),
    ]
    return "\n".join(lines)


def _by_stage(points: Mapping[str, int]) -> str:
    by_stage: dict[str, list[str]] = defaultdict(list)
    for point, count in sorted(points.items()):
        stage, _, where = point.partition(": ")
        by_stage[stage].append(f"{where} {count}")
    return table(("stage", "killed"), [(s, ", ".join(w)) for s, w in by_stage.items()])


def _mutations(results: Sequence[Found]) -> str:
    rows = [
        (
            found.mutation,
            MUTATIONS[found.mutation].what,
            f"{found.seconds:.0f} s" if found.kinds else "not found",
            ", ".join(found.kinds),
        )
        for found in results
    ]
    missed = sum(not found.kinds for found in results)
    lines = [
        "## The harness itself: faults put in, and how fast each was found\n",
        (
            f"{len(results) - missed} of {len(results)} were found. {where()}, commit {commit_of_code()}. Each runs alone on a fresh system, in "
            "rounds that aim at it; the time is from the first message to the verdict, the wait until everything is quiet included. A fault is "
            "put into the processes of one stage by replacing a method or the text of a query there (`crash/mutations.py`).\n"
        ),
        table(("mutation", "what is broken", "found after", "as"), rows),
    ]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines) + "\n"
