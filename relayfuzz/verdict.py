"""What a round broke, from the topics, the record in the database and what the writers know. Pure."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from relayfuzz.disturbing import Done
from relayfuzz.load import Known
from relayfuzz.reading import SUPPRESSIONS, Copy
from relayfuzz.repeats import BOUND_S, Closed, Repeats, Session, judge_repeats

# What must not be, in the order of the last line.
ZERO: Final = (
    "lost", "uncommitted", "changed", "inversions", "last_suppression_wrong", "not_healed", "duplicates_beyond_bound", "commits_gone",
)  # fmt: skip
# Tenant, lane, reason, evidence.
Rule = tuple[str, str, str, str | None]


@dataclass(frozen=True, slots=True)
class Written:
    """A row of the feed as its transaction recorded it. n: the number within its key, None for suppressions."""

    aggregate: str
    key: str
    seq: int
    n: int | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class Late:
    """Suppressions that a relay gave a producer up with. alive: that process still runs."""

    at: float
    relay: str
    keys: frozenset[str]
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything of one round. suppressions: what the table holds at the end, by recipient; healed: recipients of whom the last
    record was an older one and who were put into the feed again as a reader of the topic does, since no relay would."""

    copies: Sequence[Copy]
    written: Mapping[UUID, Written]
    known: Known
    suppressions: Mapping[str, frozenset[Rule]]
    sessions: Sequence[Session]
    disturbances: Sequence[Done]
    closed: Sequence[Closed] = ()
    late: Sequence[Late] = ()
    healed: frozenset[str] = frozenset()
    not_healed: frozenset[str] = frozenset()
    bound_s: float = BOUND_S


@dataclass(frozen=True, slots=True)
class Offence:
    """A broken promise. about: a row or a key."""

    kind: str
    about: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was broken, and the counts."""

    offences: Sequence[Offence]
    numbers: Counter[str]
    oldest_duplicate_s: float
    oldest_recovered_s: float

    @property
    def holds(self) -> bool:
        return not self.offences


def judge(evidence: Evidence) -> Verdict:
    """All of it."""
    repeats = judge_repeats(
        evidence.copies,
        evidence.sessions,
        evidence.disturbances,
        closed=evidence.closed,
        bound_s=evidence.bound_s,
    )
    offences = [
        *_rows(evidence),
        *_order(evidence),
        *_suppressions(evidence),
        *(Offence("duplicates_beyond_bound", b.repeat.row, b.words) for b in repeats.beyond),
        *_commits(evidence),
    ]
    kinds = Counter(offence.kind for offence in offences)
    return Verdict(
        offences=offences,
        numbers=Counter({**dict.fromkeys(ZERO, 0), **kinds, **_counts(evidence, repeats)}),
        oldest_duplicate_s=repeats.oldest,
        oldest_recovered_s=repeats.oldest_of_recoveries,
    )


def _counts(evidence: Evidence, repeats: Repeats) -> dict[str, int]:
    rows = [w for w in evidence.written.values() if w.aggregate == SUPPRESSIONS]
    return {
        "rows": len(evidence.written),
        "suppression_rows": len(rows),
        "transactions": evidence.known.transactions,
        "rolled_back_rows": len(evidence.known.undone),
        "duplicates": repeats.all,
        "duplicates_of_recoveries": repeats.of_recoveries,
        "recoveries": sum(session.lost for session in evidence.sessions),
        "sessions": len(evidence.sessions),
        "given_up_suppressions": sum(len(late.keys) for late in evidence.late),
        "healed_by_reader": len(evidence.healed),
    }


def _rows(evidence: Evidence) -> Iterable[Offence]:
    """Every committed row as it is, and nothing else."""
    seen: set[UUID] = set()
    for copy in evidence.copies:
        row = evidence.written.get(copy.row_id)
        if row is None:
            why = "was rolled back" if copy.row_id in evidence.known.undone else "is not committed"
            yield Offence("uncommitted", str(copy.row_id), f"a record of a row that {why}")
        elif (row.aggregate, row.key, row.seq, row.digest) != (
            copy.aggregate,
            copy.key,
            copy.seq,
            copy.digest,
        ):
            yield Offence("changed", str(copy.row_id), f"{copy} is not the record of {row}")
        seen.add(copy.row_id)
    for row_id, row in evidence.written.items():
        if row_id not in seen:
            yield Offence("lost", str(row_id), f"{row} was committed and has no record")


def _order(evidence: Evidence) -> Iterable[Offence]:
    """Of first copies: the sequence of each key grows, since its writers took turns."""
    seen: set[UUID] = set()
    last: dict[tuple[str, str], int] = defaultdict(int)
    for copy in sorted(evidence.copies, key=lambda c: (c.aggregate, c.partition, c.offset)):
        if copy.row_id in seen:
            continue
        seen.add(copy.row_id)
        place = (copy.aggregate, copy.key)
        if copy.seq < last[place]:
            words = f"sequence {copy.seq} of {place} comes behind {last[place]} (partition {copy.partition}, offset {copy.offset})"
            yield Offence("inversions", str(copy.row_id), words)
        last[place] = max(last[place], copy.seq)


def _suppressions(evidence: Evidence) -> Iterable[Offence]:
    """What a reader ends with that ignores older sequences; and after healing the very last record says the same."""
    best: dict[str, Copy] = {}
    last: dict[str, Copy] = {}
    for copy in sorted(evidence.copies, key=lambda c: (c.partition, c.offset)):
        if copy.aggregate != SUPPRESSIONS:
            continue
        last[copy.key] = copy
        if copy.key not in best or copy.seq >= best[copy.key].seq:
            best[copy.key] = copy
    for key in sorted(best.keys() | evidence.suppressions.keys()):
        wanted = evidence.suppressions.get(key, frozenset())
        for what, found in (("a reader", best.get(key)), ("the last record", last.get(key))):
            said = rules(found)
            if said != wanted:
                words = (
                    f"{what} says {sorted(map(str, said))}, the table {sorted(map(str, wanted))}"
                )
                yield Offence("last_suppression_wrong", key, words)
    for key in sorted(evidence.not_healed):
        words = "an older record stayed the last one, and the relay that gave its producer up lives and did nothing"
        yield Offence("not_healed", key, words)


def rules(copy: Copy | None) -> frozenset[Rule]:
    """What a record says of its recipient."""
    if copy is None or copy.value is None:
        return frozenset()
    found = json.loads(copy.value)["suppressions"]
    return frozenset((s["tenant"], s["lane"], s["reason"], s.get("evidence_id")) for s in found)


def overtaken(copies: Iterable[Copy]) -> set[str]:
    """Recipients whose last record is older than one before it."""
    highest: dict[str, int] = defaultdict(int)
    last: dict[str, int] = {}
    for copy in sorted(copies, key=lambda c: (c.partition, c.offset)):
        if copy.aggregate == SUPPRESSIONS:
            highest[copy.key] = max(highest[copy.key], copy.seq)
            last[copy.key] = copy.seq
    return {key for key, seq in last.items() if seq < highest[key]}


def _commits(evidence: Evidence) -> Iterable[Offence]:
    """PostgreSQL forgot no commit that it answered, but asynchronous ones when it was killed."""
    known, written = evidence.known, evidence.written
    crashes = [d.start for d in evidence.disturbances if d.do == "kill postgres"]
    for row_id in known.committed.keys() - written.keys():
        yield Offence("commits_gone", str(row_id), "its COMMIT was answered, and it is not there")
    for row_id, at in known.asynchronous.items():
        if row_id not in written and not any(at - 1 < crash for crash in crashes):
            yield Offence(
                "commits_gone", str(row_id), "its COMMIT was answered, and nothing crashed"
            )
    for row_id in known.undone & written.keys():
        yield Offence("commits_gone", str(row_id), "it was rolled back, and is there")
