"""The script of the demo, known in full before it runs: what is committed, and what must become of it."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

COMMITTED: Final = 2000
TENANTS: Final = ("shop", "clinic", "school")
SENDER: Final = "mail@example.com"


class Kind(StrEnum):
    """Why a message is in the script."""

    ORDINARY = "ordinary"
    WITH_COPY = "with a copy"
    MAILBOX_SIMULATOR = "to the mailbox simulator"
    SCHEDULED = "scheduled"
    BOUNCES = "bounces"
    COMPLAINS = "complains"
    SUPPRESSED = "to a suppressed address"
    FOLLOW_UP = "after a bounce or complaint"
    BROKEN = "with an unknown template"


# How many of each; the ordinary ones fill up to COMMITTED.
COUNTS: Final = {
    Kind.WITH_COPY: 20,
    Kind.MAILBOX_SIMULATOR: 10,
    Kind.SCHEDULED: 100,
    Kind.BOUNCES: 60,
    Kind.COMPLAINS: 30,
    Kind.SUPPRESSED: 100,
    Kind.FOLLOW_UP: 90,
    Kind.BROKEN: 10,
}
ROLLED_BACK: Final = 60
TWINS: Final = 40

FINAL_STATE: Final = {
    Kind.ORDINARY: "submitted",
    Kind.WITH_COPY: "submitted",
    Kind.MAILBOX_SIMULATOR: "submitted",
    Kind.SCHEDULED: "submitted",
    Kind.BOUNCES: "submitted",
    Kind.COMPLAINS: "submitted",
    Kind.SUPPRESSED: "suppressed",
    Kind.FOLLOW_UP: "suppressed",
    Kind.BROKEN: "failed",
}

RULES: Final = [
    {"match": "bounces-*@example.com", "outcome": "bounce", "bounce_type": "Permanent", "bounce_subtype": "NoEmail"},
    {"match": "complains-*@example.com", "outcome": "complaint", "feedback_type": "abuse"},
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One intended e-mail. number is its business order; twin: committed a second time under the same dedup key."""

    number: int
    kind: Kind
    recipient: str
    tenant: str
    lane: str
    cc: str | None = None
    due_in_s: float | None = None
    twin: bool = False
    rolled_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """transactions: those of the first wave, in order; follow_ups: committed once their suppression is in force."""

    suppressed_before: Sequence[str]
    transactions: Sequence[Sequence[Message]]
    follow_ups: Sequence[Message]

    @property
    def messages(self) -> list[Message]:
        """Those that are committed."""
        first = [m for t in self.transactions for m in t if not m.rolled_back]
        return [*first, *self.follow_ups]

    @property
    def expected_states(self) -> Counter[str]:
        return Counter(FINAL_STATE[m.kind] for m in self.messages)


def make_plan(seed: int) -> Plan:
    """The script of this seed; the counts are the same for each."""
    rng = random.Random(seed)  # noqa: S311 a script, no secret
    singles = _first_wave(rng)
    rng.shuffle(singles)
    transactions = _grouped(singles, rng)
    for number in range(ROLLED_BACK // 3):
        lost = [
            _message(
                10_000 + number * 3 + n, Kind.ORDINARY, f"rolled-back-{number}-{n}@example.com", rng
            )
            for n in range(3)
        ]
        transactions.insert(
            rng.randrange(len(transactions)), [replace(m, rolled_back=True) for m in lost]
        )
    unhappy = [m for m in singles if m.kind in (Kind.BOUNCES, Kind.COMPLAINS)]
    follow_ups = [replace(m, number=20_000 + n, kind=Kind.FOLLOW_UP) for n, m in enumerate(unhappy)]
    suppressed = [m.recipient for m in singles if m.kind is Kind.SUPPRESSED]
    return Plan(suppressed_before=suppressed, transactions=transactions, follow_ups=follow_ups)


def _first_wave(rng: random.Random) -> list[Message]:
    made: list[Message] = []
    for kind, count in COUNTS.items():
        if kind is Kind.FOLLOW_UP:
            continue
        made += [_of_kind(len(made) + n, kind, n, rng) for n in range(count)]
    ordinary = COMMITTED - sum(COUNTS.values())
    made += [_of_kind(len(made) + n, Kind.ORDINARY, n, rng) for n in range(ordinary)]
    twins = rng.sample([m.number for m in made if m.kind is Kind.ORDINARY], TWINS)
    return [replace(m, twin=m.number in twins) for m in made]


def _of_kind(number: int, kind: Kind, n: int, rng: random.Random) -> Message:
    match kind:
        case Kind.MAILBOX_SIMULATOR:
            return _message(number, kind, f"success+{n}@simulator.amazonses.com", rng)
        case Kind.SCHEDULED:
            message = _message(number, kind, f"scheduled-{n}@example.com", rng)
            return replace(message, due_in_s=rng.uniform(3, 8))
        case Kind.WITH_COPY:
            message = _message(number, kind, f"with-copy-{n}@example.com", rng)
            return replace(message, cc=f"copy-{n}@example.com")
        case _:
            return _message(number, kind, f"{kind.name.lower()}-{n}@example.com", rng)


def _message(number: int, kind: Kind, recipient: str, rng: random.Random) -> Message:
    lane = "bulk" if rng.random() < 0.3 else "transactional"
    return Message(
        number=number, kind=kind, recipient=recipient, tenant=rng.choice(TENANTS), lane=lane
    )


def _grouped(messages: Sequence[Message], rng: random.Random) -> list[list[Message]]:
    groups, at = [], 0
    while at < len(messages):
        size = rng.choice((1, 1, 2, 3, 5, 10))
        groups.append(list(messages[at : at + size]))
        at += size
    return groups
