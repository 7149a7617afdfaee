"""Every fact of the simulator's ledger against what PostgreSQL holds of it. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

# The simulator's word for an event, our type, and the column of recipient_outcome that it fills.
TYPES: Final = {
    "Send": "accepted",
    "Delivery": "delivered",
    "DeliveryDelay": "delayed",
    "Bounce": "bounced",
    "Complaint": "complained",
    "Reject": "rejected",
    "Rendering Failure": "rendering-failed",
    "Open": "opened",
    "Click": "clicked",
    "Subscription": "unsubscribed",
}
COLUMNS: Final = {kind: f"{kind.replace('-', '_')}_at" for kind in TYPES.values()}
UNNAMED: Final = ("opened", "clicked", "unsubscribed")
SHOWN: Final = 5


class Fact(NamedTuple):
    """What was told of one recipient of one message; key is the recipient key."""

    outbox_id: str
    key: str
    type: str


class Cause(NamedTuple):
    """A suppression by its recipient and reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What PostgreSQL holds. filled: the columns of each recipient's outcome that are; bounce_types: of those that bounced."""

    events: Counter[Fact]
    unmatched: int
    filled: Mapping[tuple[str, str], frozenset[str]]
    bounce_types: Mapping[tuple[str, str], str]
    suppressions: frozenset[Cause]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the ledger says that PostgreSQL has to hold."""

    facts: Counter[Fact]
    filled: Mapping[tuple[str, str], frozenset[str]]
    permanent: frozenset[tuple[str, str]]
    suppressions: frozenset[Cause]


def read_ledger(ledger: Iterable[Mapping[str, Any]], keys: Mapping[str, str]) -> Truth:
    """keys: address -> recipient key."""
    facts: Counter[Fact] = Counter()
    filled: dict[tuple[str, str], set[str]] = {}
    permanent: set[tuple[str, str]] = set()
    suppressions: set[Cause] = set()
    for call in ledger:
        for told in _told_apart(call["facts"]):
            kind, detail = TYPES[told["event"]], told["detail"] or ""
            for address in _concerned(call, told, kind):
                fact = Fact(call["outbox"], keys[address], kind)
                who = (fact.outbox_id, fact.key)
                facts[fact] += 1
                columns = filled.setdefault(who, set())
                if not (_is_automatic_reply(call, address, kind) or _is_praise(kind, detail)):
                    columns.add(COLUMNS[kind])
                reason = _suppression(kind, detail)
                if reason is not None:
                    suppressions.add(Cause(fact.key, reason))
                if reason == "hard-bounce":
                    permanent.add(who)
    return Truth(
        facts=facts,
        filled={who: frozenset(columns) for who, columns in filled.items()},
        permanent=frozenset(permanent),
        suppressions=frozenset(suppressions),
    )


def _told_apart(facts: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Two opens of one message in the same millisecond, by whomever, are told in the same words: one fact. What was published
    while nobody was subscribed to it is none."""
    seen = set()
    for told in facts:
        if not told["subscribers"]:
            continue
        words = (told["event"], told["occurred_at"])
        if TYPES[told["event"]] not in UNNAMED or words not in seen:
            yield told
        seen.add(words)


def _concerned(call: Mapping[str, Any], told: Mapping[str, Any], kind: str) -> Sequence[str]:
    """Whom a fact is about as far as the notification says: opens, clicks and opt-outs name nobody, so they are of all."""
    return call["recipients"] if kind in UNNAMED else (told["recipient"],)


def _is_automatic_reply(call: Mapping[str, Any], address: str, kind: str) -> bool:
    """It comes as a bounce, and is none."""
    return kind == "bounced" and call["outcomes"][address] == "auto-reply"


def _is_praise(kind: str, detail: str) -> bool:
    """It comes as a complaint, and says the opposite."""
    return kind == "complained" and detail == "not-spam"


def _suppression(kind: str, detail: str) -> str | None:
    if kind == "bounced" and detail.startswith("Permanent/"):
        return "hard-bounce"
    if kind == "complained" and not _is_praise(kind, detail):
        return "complaint"
    return "unsubscribed" if kind == "unsubscribed" else None


def differences(truth: Truth, held: Held) -> list[str]:
    """Each kind of difference in one line with some examples; none where every fact is there exactly once."""
    missing, surplus = truth.facts - held.events, held.events - truth.facts
    outcomes = [
        f"{who}: {sorted(held.filled.get(who, ()))} instead of {sorted(truth.filled.get(who, ()))}"
        for who in truth.filled.keys() | held.filled.keys()
        if held.filled.get(who, frozenset()) != truth.filled.get(who, frozenset())
    ]
    bounces = [
        f"{who}: {kind}"
        for who, kind in held.bounce_types.items()
        if (kind == "permanent") != (who in truth.permanent)
    ]
    found = [
        ("facts of the ledger that PostgreSQL lacks", _shown(missing)),
        ("facts that PostgreSQL holds more often than the ledger, or that nobody told", _shown(surplus)),
        ("recipients' outcomes with other columns than their facts", outcomes),
        ("bounces that are permanent here and not there", bounces),
        ("suppressions that are missing", [str(c) for c in truth.suppressions - held.suppressions]),
        ("suppressions without a cause", [str(c) for c in held.suppressions - truth.suppressions]),
    ]  # fmt: skip
    lines = [_line(what, examples) for what, examples in found if examples]
    if held.unmatched:
        lines.append(f"{held.unmatched} events without their message")
    return lines


def _shown(facts: Counter[Fact]) -> list[str]:
    return [f"{tuple(fact)} x{count}" for fact, count in facts.items()]


def _line(what: str, examples: Sequence[str]) -> str:
    more = ", ..." if len(examples) > SHOWN else ""
    return f"{len(examples)} {what}: {'; '.join(sorted(examples)[:SHOWN])}{more}"
