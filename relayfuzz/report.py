"""The parts on the relay of docs/proof.md, written by the fuzz alone."""

from collections.abc import Sequence
from typing import Final

from crash.campaign import commit_of_code
from crash.report import table, where
from relayfuzz.campaign import Goal, State
from relayfuzz.focus import Found
from relayfuzz.mutations import MUTATIONS
from relayfuzz.repeats import BOUND_S

_MEANING: Final = {
    "lost": "committed rows without a record",
    "uncommitted": "records of rows that were rolled back or that nobody committed",
    "changed": "records that differ from their row in topic, key, value or sequence",
    "inversions": "first copies of a key's rows in another order than that of their commits",
    "last_suppression_wrong": "recipients of whom a reader that ignores older sequences, or the very last record after healing, says anything else than the table",
    "not_healed": "recipients whose last record stayed an older one although the relay that gave its producer up lives",
    "duplicates_beyond_bound": f"rows sent again beyond as many as were sent in the last {BOUND_S * 1000:g} ms before the disturbance, or by two relays at once",
    "commits_gone": "commits that PostgreSQL answered and forgot (not of the relay: shows that the record of truth holds)",
}
_INTRODUCTION: Final = """`make relayfuzz` runs two relays on real PostgreSQL and Kafka, each with connections of its own for SQL and for replication that can be cut
apart. Writers commit transactions of 1 to 1,000 rows, some asynchronously, some for seconds, roll back as a whole or to a savepoint, and add, change
and lift suppressions through the table's triggers; whoever writes a key holds its lock until the COMMIT. What was committed stands in a table that a trigger fills
in the same transaction, and in the memory of the writers. Relays are killed, frozen and ended, most often the one that streams, at random moments and at named points;
connections are reset, refused, delayed, muted, frozen, cut off in the middle of an answer, and what is on its way to Kafka arrives late beside newer
connections; PostgreSQL and Kafka are killed, restarted and frozen; the slot is dropped, advanced and made anew by somebody else. After each round the topics are read whole.

When a record was sent is its own time stamp, which the relay sets when it reads the row, by the clock that the kills are noted with. After each disturbance no more rows may be sent again than were
sent in the last moments before it; disturbances within a second of each other are one. What a lost slot
makes a relay send again is counted apart.
"""


def campaign_part(state: State, goal: Goal) -> str:
    """What was done, and what came of it."""
    numbers = state.numbers
    commits = ", ".join(
        f"{commit} ({count} kills and cuts)" for commit, count in state.commits.items()
    )
    verdict = "Every promise held." if state.holds else f"Broken in rounds {state.failed_rounds}."
    how = "by its slot" if goal.mode == "wal" else "by polling"
    lines = [
        f"## The relay, reading {how}: {state.kills:,} kills and {state.cuts:,} cuts over {numbers['rows']:,} rows\n",
        _INTRODUCTION,
        (
            f"{verdict} {where()}. Commits: {commits}. Seed {state.seed}, {state.next_round} rounds, {state.seconds / 60:.0f} minutes.\n"
        ),
        table(
            ("what must not be", "count", "meaning"),
            [(name, numbers[name], words) for name, words in _MEANING.items()],
        ),
        (
            f"Duplicates: {numbers['duplicates']:,}, of which {numbers['duplicates_of_recoveries']:,} came of {numbers['recoveries']:,} recoveries of a lost slot "
            f"(first sent up to {state.oldest_recovered_s:.1f} s before); "
            f"of the others the oldest was first sent {state.oldest_duplicate_s * 1000:.0f} ms before its disturbance. A relay became the one that writes "
            f"{numbers['sessions']:,} times. {numbers['rolled_back_rows']:,} rows were rolled back. Producers were given up with "
            f"{numbers['given_up_suppressions']:,} suppressions on their way; in {numbers['healed_by_reader']:,} cases the relay that knew of it was dead, "
            "and the recipient was put into the feed again as a sender does that reads the older record.\n"
        ),
        table(("fault", "count"), sorted(state.counts.items())),
        "Relays killed by point: "
        + ", ".join(f"{point} {count}" for point, count in sorted(state.points.items()))
        + ".\n",
    ]
    return "\n".join(lines)


def mutations_part(results: Sequence[Found]) -> str:
    """How fast each fault was found."""
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
        "## The fuzz of the relay itself: faults put in, and how fast each was found\n",
        (
            f"{len(results) - missed} of {len(results)} were found. {where()}, commit {commit_of_code()}. Each runs alone on fresh systems, in rounds "
            "that aim at it; the time includes making the system and the wait until everything is quiet (`relayfuzz/mutations.py`).\n"
        ),
        table(("mutation", "what is broken", "found after", "as"), rows),
    ]
    return "\n".join(lines)
