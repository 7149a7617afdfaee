"""What `mailstreams status` makes of what it was told: one line a part, and whether somebody should look."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from streams.domain.pauses import AUTOMATIC
from streams.domain.schedule import Backlog
from streams.domain.topics import Lane

# What is older wants a person; AWS tells of nearly all messages within seconds.
LATE_S: Final = {Lane.TRANSACTIONAL: 60.0, Lane.BULK: 900.0}
SETTLING_S: Final = 900.0
BEHIND_S: Final = 60.0
OLD_RATE_S: Final = 300.0
SILENT_S: Final = 15.0
LAG_BYTES: Final = 256 * 1024 * 1024


class Level(StrEnum):
    """UNSEEN: it could not be looked at, which wants attention too."""

    OK = "ok"
    ATTENTION = "attention"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is known of one part; next: what to do or to look at, where there is something."""

    part: str
    level: Level
    told: str
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What the small tables say of what waits; ages in seconds, None where nothing is that old.

    oldest_due: by lane, of the wake-ups whose time has come; overdue: how many those are, at most 10,000 looked at.
    """

    overdue: Mapping[Lane, int]
    oldest_due: Mapping[Lane, float]
    oldest_ambiguous: float | None
    oldest_dead_letter: float | None
    refused_by_relay: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A row of send_rate; ages in seconds."""

    scope: str
    per_second: float
    read_age: float
    failing: int
    failing_reason: str | None
    open_age: float | None
    probe_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySlot:
    """The relay's slot; checkpoint_age: seconds since a relay stored its position, None: never."""

    active: bool
    wal_status: str | None
    lag_bytes: int
    kept_share: float
    checkpoint_age: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """Relays that poll: how many shares of the keys there are and are in somebody's hands; seconds that the oldest row waits."""

    shards: int
    held: int
    oldest_age: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What a consumer group has not done of one topic. age: seconds since its oldest such record was written."""

    group: str
    topic: str
    records: int
    age: float | None


def verdict(lines: Iterable[Line]) -> Level:
    return Level.OK if all(line.level is Level.OK for line in lines) else Level.ATTENTION


def unseen(part: str, why: str) -> Line:
    return Line(part=part, level=Level.UNSEEN, told=why)


def judge_pending(lane: Lane, age: float | None, waiting: Waiting) -> Line:
    """age: of the oldest pending row that was found; None if none was."""
    known = [a for a in (age, waiting.oldest_due.get(lane)) if a is not None]
    part, overdue = f"pending {lane}", waiting.overdue.get(lane, 0)
    if not known:
        return _ok(part, "nothing waits")
    told = f"the oldest found waits for {span(max(known))}"
    told += f"; {overdue} wake-ups are due" if overdue else ""
    if max(known) <= LATE_S[lane]:
        return _ok(part, told)
    return _attention(part, told, "the other lines say what holds it")


def judge_pauses(rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    if not rows:
        return [_ok("pauses", "nothing is paused")]
    return [_pause(row) for row in rows]


def _pause(row: Mapping[str, Any]) -> Line:
    what = row["scope"] if row["scope"] == "account" else f"{row['scope']} {row['value']}"
    until = "it is lifted" if row["until"] is None else _time(row["until"])
    told = f"{what} is paused by {row['who']} since {_time(row['since'])} until {until}: {row['reason']}"
    by_itself = row["who"] in AUTOMATIC
    lift = "it ends by itself once SES takes calls again" if by_itself else "mailstreams resume"
    return _attention("pauses", told, lift)


def judge_rates(rates: Sequence[Rate]) -> list[Line]:
    if not rates:
        return [
            _attention(
                "rate",
                "no sending rate is known, so nothing is sent",
                "see why the scheduler cannot read GetAccount",
            )
        ]
    return [line for rate in rates for line in (_rate(rate), _circuit(rate))]


def _rate(rate: Rate) -> Line:
    told = f"{rate.scope}: {rate.per_second:g} recipients a second, read {span(rate.read_age)} ago"
    if rate.read_age <= OLD_RATE_S:
        return _ok("rate", told)
    return _attention("rate", told, "see why the scheduler cannot read GetAccount")


def _circuit(rate: Rate) -> Line:
    if rate.open_age is None:
        failing = f"; the last {rate.failing} calls failed: {rate.failing_reason}"
        return _ok("circuit", f"{rate.scope}: closed{failing if rate.failing else ''}")
    probe = f", next probe in {span(max(rate.probe_in or 0.0, 0.0))}"
    told = f"{rate.scope}: open for {span(rate.open_age)}{probe}: {rate.failing_reason}"
    return _attention("circuit", told, "see SES, the network and the endpoint; it closes by itself")


def judge_backlog(backlog: Backlog, waiting: Waiting) -> list[Line]:
    return [
        _ok("calls", f"{backlog.leases} under way"),
        _ambiguous(backlog, waiting),
        _counted(
            "held",
            backlog.held,
            "calls of unknown outcome were given to a person",
            "mailstreams ambiguous settle",
        ),
        _counted(
            "dead letters",
            backlog.dead_letters,
            f"messages failed for good, the first {_ago(waiting.oldest_dead_letter)}",
            "mailstreams dlq list",
        ),
        _counted(
            "set aside",
            waiting.refused_by_relay,
            "rows of the feed can be no records of Kafka",
            "see table relay_refused",
        ),
        _ok(
            "duplicates",
            f"{backlog.possible_duplicates} possible, {backlog.proven_duplicates} proven",
        ),
        _heartbeat(backlog.heartbeat_age),
    ]


def _ambiguous(backlog: Backlog, waiting: Waiting) -> Line:
    if not backlog.ambiguous:
        return _ok("ambiguous", "no call of unknown outcome waits for evidence")
    age = waiting.oldest_ambiguous or 0.0
    told = f"{backlog.ambiguous} calls of unknown outcome wait for evidence, the oldest for {span(age)}"
    if age <= SETTLING_S:
        return _ok("ambiguous", told)
    return _attention("ambiguous", told, "see whether events come in; mailstreams ambiguous list")


def _heartbeat(age: float | None) -> Line:
    if age is None:
        return _attention("scheduler", "it has never worked here", "start it")
    told = f"its last heartbeat was {span(max(age, 0.0))} ago"
    if age <= SILENT_S:
        return _ok("scheduler", told)
    return _attention("scheduler", told, "start it, or see its log")


def judge_slot(slot: RelaySlot | None, name: str) -> Line:
    if slot is None:
        return _attention("relay", f"there is no slot {name}", "start the relay, which makes it")
    told = f"{slot.lag_bytes / 2**20:.1f} MiB behind, {slot.wal_status or 'unknown'}"
    if slot.kept_share:
        told += f", {slot.kept_share:.0%} of max_slot_wal_keep_size kept"
    if slot.wal_status == "lost":
        return _attention("relay", told, "the slot is lost: docs/relay.md")
    if not slot.active:
        ago = _ago(slot.checkpoint_age)
        return _attention("relay", f"nobody reads the slot; {told}; last worked {ago}", "start it")
    if slot.lag_bytes > LAG_BYTES or slot.kept_share > 0.5:
        return _attention("relay", told, "see Kafka and the relay's log")
    return _ok("relay", told)


def judge_polling(polling: Polling) -> Line:
    told = f"{polling.held} of {polling.shards} shares of the keys are polled"
    if polling.oldest_age is not None:
        told += f", the oldest row waits for {span(max(polling.oldest_age, 0.0))}"
    if not polling.held:
        return _attention("relay", told, "start it")
    if polling.held < polling.shards or (polling.oldest_age or 0.0) > BEHIND_S:
        return _attention("relay", told, "see Kafka and the relays' logs")
    return _ok("relay", told)


def judge_lags(lags: Sequence[Lag]) -> list[Line]:
    return [_lag(lag) for lag in lags]


def _lag(lag: Lag) -> Line:
    part = f"lag {lag.topic}"
    if not lag.records:
        return _ok(part, f"{lag.group} has done everything")
    age = "of unknown age" if lag.age is None else f"the oldest {span(lag.age)} old"
    told = f"{lag.group} has {lag.records} records to do, {age}"
    if lag.age is not None and lag.age <= BEHIND_S:
        return _ok(part, told)
    return _attention(part, told, f"start what reads it, or see its log; group {lag.group}")


def judge_suppressions(ages_s: Mapping[int, float | None], *, bound_s: float) -> Line:
    """By partition, seconds since the newest heartbeat in the topic of suppressions."""
    old = {p: age for p, age in ages_s.items() if age is None or age > bound_s}
    if not ages_s or old:
        ages = [age for age in old.values() if age is not None]
        oldest = f"up to {span(max(ages))} old" if ages else "not there"
        told = f"heartbeats of {len(old)} of {len(ages_s)} partitions are {oldest}, senders stop at {bound_s:g} s"
        return _attention("suppressions", told, "see scheduler and relay")
    newest = max(age for age in ages_s.values() if age is not None)
    return _ok("suppressions", f"no heartbeat is older than {span(max(newest, 0.0))}")


def span(seconds: float) -> str:
    """So that a person takes it in at a glance."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{span(seconds)} ago"


def _counted(part: str, count: int, told: str, then: str) -> Line:
    return _attention(part, f"{count} {told}", then) if count else _ok(part, "none")


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _ok(part: str, told: str) -> Line:
    return Line(part=part, level=Level.OK, told=told)


def _attention(part: str, told: str, then: str) -> Line:
    return Line(part=part, level=Level.ATTENTION, told=told, next=then)
