"""What was found after a round, held against what must hold. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

FINAL: Final = frozenset(("submitted", "suppressed", "failed", "expired", "cancelled"))
# What an outcome of this kind may make of the row whose token it carries.
MAKES: Final = {
    "accepted": frozenset({"submitted"}),
    "unknown": frozenset({"ambiguous"}),
    "permanent": frozenset({"failed"}),
    "unsendable": frozenset({"failed"}),
    "retry": frozenset({"pending", "failed"}),
    "throttled": frozenset({"pending"}),
    "account-stop": frozenset({"pending"}),
    "misconfigured": frozenset({"pending"}),
    "released": frozenset({"pending"}),
}
SENDER: Final = "mailstreams sender"
# A sender claims what is pending, and writes the outcome of what it claimed; it moves nothing else.
_OF_SENDERS: Final = ("pending", "sending")
# Each of these has to be zero.
ZERO: Final = (
    "lost", "sent_twice", "sent_to_suppressed", "stale_writes", "pending_at_end", "ambiguous_at_end", "sent_uncommitted",
    "facts_wrong", "ambiguous_unexplained", "called_before_caught_up", "called_although_known", "unknown_in_outage",
)  # fmt: skip
# So many rows may become ambiguous while SES is down, whatever waits (one circuit for all replicas), and the calls under way.
MOST_IN_OUTAGE: Final = 50


class Row(NamedTuple):
    """An outbox row at the end."""

    state: str
    reason: str | None
    key: str
    recipient_key: str
    tenant: str
    lane: str


class Change(NamedTuple):
    """A change of state. token: the attempt that it left; next_token: that it entered; at: seconds since 1970."""

    at: float
    xid: int
    by_whom: str
    outbox_id: str
    was: str
    state: str
    token: str | None
    next_token: str | None
    reason: str | None
    snapshot: str | None


class Suppressed(NamedTuple):
    """A suppression that was made, or withdrawn."""

    xid: int
    made: bool
    recipient_key: str
    tenant: str
    lane: str
    reason: str


class Call(NamedTuple):
    """A call that SES accepted."""

    outbox_id: str
    attempt: str
    recipient_keys: tuple[str, ...]
    at: float


@dataclass(slots=True)
class Attempt:
    """What the journals say of one attempt. died: its worker ended before it told an outcome."""

    outbox_id: str | None = None
    worker: str = ""
    claimed_at: float = 0.0
    told: list[str] = field(default_factory=list)
    recorded: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    died: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything of one round. lease_s: how long a claim was good; unknown_in_outages: of each outage of SES, how many rows became
    ambiguous in it by an answer."""

    rows: Mapping[str, Row]
    committed: frozenset[str]
    doubtful_keys: frozenset[str]
    undone_keys: frozenset[str]
    calls: Sequence[Call]
    changes: Sequence[Change]
    suppressions: Sequence[Suppressed]
    attempts: Mapping[str, Attempt]
    facts_wrong: Sequence[str]
    lease_s: float
    settled_by_hand: frozenset[str] = frozenset()
    outages: Sequence[tuple[float, float]] = ()


class Offence(NamedTuple):
    """One thing that must not be; outbox_id, where it is about one row."""

    kind: str
    outbox_id: str | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The counts, and every offence."""

    numbers: Mapping[str, int]
    offences: Sequence[Offence]

    @property
    def holds(self) -> bool:
        return not self.offences


def judge(found: Evidence) -> Verdict:
    """Every check."""
    by_row: dict[str, list[Call]] = defaultdict(list)
    for call in found.calls:
        by_row[call.outbox_id].append(call)
    offences = [
        *_lost(found, by_row),
        *_sent_twice(found, by_row),
        *_uncommitted(found, by_row),
        *_sent_to_suppressed(found),
        *_stale_writes(found),
        *_unfinished(found),
        *_unexplained(found),
        *_calls_of_senders(found),
        *_outages(found),
        *(Offence("facts_wrong", None, words) for words in found.facts_wrong),
    ]
    counts = Counter(offence.kind for offence in offences)
    states = Counter(row.state for row in found.rows.values())
    ambiguous = [c for c in found.changes if c.state == "ambiguous"]
    numbers = {
        "messages": len(found.rows),
        **{name: counts[name] for name in ZERO},
        **{f"rows_{state}": states[state] for state in sorted(FINAL)},
        "calls_accepted": len(found.calls),
        "ambiguous_ever": len({c.outbox_id for c in ambiguous}),
        "in_flight_at_kills": sum(1 for a in found.attempts.values() if a.died),
        "unknown_answers": sum("unknown" in a.told for a in found.attempts.values()),
        "stale_refused": sum(a.recorded.count("stale") for a in found.attempts.values()),
        "settled_by_hand": len(found.settled_by_hand),
        "overruled": sum("overruled" in a.called for a in found.attempts.values()),
    }
    return Verdict(numbers=numbers, offences=offences)


def _lost(found: Evidence, calls: Mapping[str, Sequence[Call]]) -> Iterator[Offence]:
    suppressed = {s.recipient_key for s in found.suppressions if s.made}
    for outbox_id in found.committed - found.rows.keys():
        yield Offence("lost", outbox_id, "was committed and is not there")
    for outbox_id, row in found.rows.items():
        if row.state == "submitted" and outbox_id not in calls:
            yield Offence("lost", outbox_id, "is submitted, and SES never took it")
        if row.state == "suppressed" and row.recipient_key not in suppressed:
            yield Offence("lost", outbox_id, "is suppressed, and its recipient is not")
        if row.state == "failed":
            yield Offence(
                "lost", outbox_id, f"failed, though SES refuses nothing for good: {row.reason}"
            )


def _sent_twice(found: Evidence, calls: Mapping[str, Sequence[Call]]) -> Iterator[Offence]:
    for outbox_id, taken in calls.items():
        if outbox_id in found.rows and len(taken) > 1:
            attempts = ", ".join(call.attempt for call in taken)
            yield Offence("sent_twice", outbox_id, f"SES took it {len(taken)} times: {attempts}")


def _uncommitted(found: Evidence, calls: Mapping[str, Sequence[Call]]) -> Iterator[Offence]:
    for outbox_id, row in found.rows.items():
        if row.key in found.undone_keys:
            yield Offence("sent_uncommitted", outbox_id, "is there although it was rolled back")
        elif outbox_id not in found.committed and row.key not in found.doubtful_keys:
            yield Offence("sent_uncommitted", outbox_id, "is there, and nobody committed it")
    for outbox_id in calls.keys() - found.rows.keys():
        yield Offence("sent_uncommitted", outbox_id, "SES took it, and there is no such row")


def _sent_to_suppressed(found: Evidence) -> Iterator[Offence]:
    """I4, exactly: the snapshot of the claim shows the suppression, and SES took the call."""
    claims = {c.next_token: c for c in found.changes if c.state == "sending" and c.next_token}
    log: dict[str, list[Suppressed]] = defaultdict(list)
    for entry in found.suppressions:
        log[entry.recipient_key].append(entry)
    for call in found.calls:
        claim, row = claims.get(call.attempt), found.rows.get(call.outbox_id)
        if claim is None or claim.snapshot is None or row is None:
            continue
        seen = Snapshot.read(claim.snapshot)
        for key in call.recipient_keys:
            if _in_force(log.get(key, ()), seen, row):
                words = (
                    f"attempt {call.attempt} went to {key}, whose suppression the claim could see"
                )
                yield Offence("sent_to_suppressed", call.outbox_id, words)


def _in_force(log: Iterable[Suppressed], seen: "Snapshot", row: Row) -> bool:
    last: dict[tuple[str, str, str], bool] = {}
    for entry in log:
        if (
            seen.shows(entry.xid)
            and entry.tenant in ("*", row.tenant)
            and entry.lane in ("*", row.lane)
        ):
            last[entry.tenant, entry.lane, entry.reason] = entry.made
    return any(last.values())


class Snapshot(NamedTuple):
    """PostgreSQL's pg_snapshot."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def read(cls, text: str) -> "Snapshot":
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(x) for x in running.split(",") if x))

    def shows(self, xid: int) -> bool:
        """Whether what that transaction committed is visible."""
        return xid < self.xmin or (xid < self.xmax and xid not in self.running)


def _stale_writes(found: Evidence) -> Iterator[Offence]:
    """I6: a row leaves an attempt only by an outcome of that very attempt, or when its lease is over."""
    claimed_at: dict[str | None, float] = {}
    for change in found.changes:
        if change.state == "sending":
            claimed_at[change.next_token] = change.at
        if change.by_whom == SENDER and change.was not in _OF_SENDERS:
            words = (
                f"was moved from {change.was} to {change.state} by a sender that had no claim on it"
            )
            yield Offence("stale_writes", change.outbox_id, words)
        if change.was != "sending" or change.token is None:
            continue
        attempt = found.attempts.get(change.token, Attempt())
        if any(change.state in MAKES.get(kind, ()) for kind in attempt.told):
            continue
        age = change.at - claimed_at.get(change.token, change.at)
        if change.state == "ambiguous" and age > found.lease_s - 0.05:
            continue
        told = ", ".join(attempt.told) or "nothing"
        words = f"left attempt {change.token} for {change.state} after {age:.1f} s, of which was told: {told}"
        yield Offence("stale_writes", change.outbox_id, words)


def _unfinished(found: Evidence) -> Iterator[Offence]:
    for outbox_id, row in found.rows.items():
        if row.state == "ambiguous":
            yield Offence("ambiguous_at_end", outbox_id, "is still ambiguous")
        elif row.state not in FINAL:
            yield Offence("pending_at_end", outbox_id, f"is still {row.state}")


def _unexplained(found: Evidence) -> Iterator[Offence]:
    """A lease runs out when its worker died, or could not tell in time; never because it forgot."""
    for change in found.changes:
        if change.state != "ambiguous" or change.token is None:
            continue
        attempt = found.attempts.get(change.token)
        if attempt is None or attempt.died or attempt.told:
            continue
        words = f"{attempt.worker} lived, and told nothing of attempt {change.token}"
        yield Offence("ambiguous_unexplained", change.outbox_id, words)


def _calls_of_senders(found: Evidence) -> Iterator[Offence]:
    """I5 and the last look of I4, as the witness saw the table in the moment before the first byte."""
    kinds = {"loading": "called_before_caught_up", "known": "called_although_known"}
    for token, attempt in found.attempts.items():
        for flag in attempt.called:
            if flag in kinds:
                words = f"{attempt.worker} made call {token} while its table was: {flag}"
                yield Offence(kinds[flag], attempt.outbox_id, words)


def _outages(found: Evidence) -> Iterator[Offence]:
    for start, end in found.outages:
        turned = {
            c.outbox_id
            for c in found.changes
            if c.state == "ambiguous" and start <= c.at <= end + 1.0
        }
        if len(turned) > MOST_IN_OUTAGE:
            words = f"{len(turned)} rows became ambiguous in an outage of {end - start:.0f} s"
            yield Offence("unknown_in_outage", None, words)


def read_journal(worker: str, lines: Iterable[Sequence[str]], into: dict[str, Attempt]) -> None:
    """Adds what a worker noted. Whatever it had claimed and not told when it was started anew, it died with."""
    open_ones: dict[str, Attempt] = {}
    for kind, at, *words in lines:
        if kind == "start":
            for attempt in open_ones.values():
                attempt.died = True
            open_ones.clear()
            continue
        attempt = into.setdefault(words[0], Attempt())
        _note(attempt, kind, float(at), words[1:], worker)
        if kind == "claim":
            open_ones[words[0]] = attempt
        elif kind == "told":
            open_ones.pop(words[0], None)


def _note(attempt: Attempt, kind: str, at: float, words: Sequence[str], worker: str) -> None:
    attempt.worker = attempt.worker or worker
    match kind:
        case "claim":
            attempt.outbox_id, attempt.claimed_at = words[0], at
        case "call":
            attempt.called.append(words[0])
        case "answer":
            attempt.answers.append(words[0])
        case "tell":
            attempt.told.append(words[0])
        case "told":
            attempt.recorded.append(words[0])
        case _:
            pass


def sums(all_numbers: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Of several rounds."""
    total: Counter[str] = Counter()
    for numbers in all_numbers:
        total.update(numbers)
    return total
