"""What a round is to be, from a seed alone: the load, and the list of disturbances with their moments."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from crash.traps import POINTS

REPLICAS: Final = {"sender": 3, "relay": 2, "events": 2, "recipients": 2, "scheduler": 2}
# How often a stage is meant, of all disturbances of workers.
WEIGHTS: Final = {"sender": 9, "relay": 3, "events": 3, "recipients": 3, "scheduler": 2}
KILLS: Final = ("kill", "kill at", "term")
CUTS: Final = ("reset", "refuse", "delay", "mute", "freeze", "truncate")


def stage_of(who: str) -> str:
    """Of `sender-2`, its stage."""
    return who.split("-", maxsplit=1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One fault. at: seconds from the start of the round; who: a worker, link or server; back_s: until it is started again."""

    at: float
    do: str
    who: str = ""
    point: str = ""
    times: int = 1
    seconds: float = 0.0
    how: str = ""
    share: float = 1.0
    back_s: float = 0.0

    @property
    def name(self) -> str:
        """The kind, for counting."""
        if self.do == "cut":
            return f"cut {self.who.split('-')[-1]}: {self.how}"
        return f"{self.do} {stage_of(self.who)}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Shares of the load and faults of SES; what a mutation needs to be found fast differs from the default."""

    scheduled: float = 0.08
    expiring: float = 0.06
    copied: float = 0.04
    cancelled: float = 0.03
    rolled_back: float = 0.04
    bulk: float = 0.3
    suppressed: float = 0.03
    lost_answers: float = 0.05
    slow_answers: float = 0.25
    unavailable: float = 0.01
    throttled: float = 0.005
    refused: float = 0.005
    dropped: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row that the application wants. Seconds count from its commit."""

    number: int
    recipient: str
    tenant: str
    lane: str
    copy: str | None
    due_s: float | None
    expires_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What is committed together. suppress_first and suppress_then: in transactions of their own right before and after."""

    at: float
    messages: Sequence[Message]
    rolled_back: bool
    suppress_first: Sequence[str]
    suppress_then: Sequence[str]
    cancel: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One round. The load follows from seed, number, messages and per_second; the disturbances stand for themselves."""

    seed: int
    number: int
    messages: int
    per_second: float
    mix: Mix = field(default_factory=Mix)
    disturbances: tuple[Disturbance, ...] = ()
    mutation: str | None = None

    @property
    def lasting_s(self) -> float:
        return self.messages / self.per_second

    def with_disturbances(self, chosen: Sequence[Disturbance]) -> Self:
        return replace(self, disturbances=tuple(chosen))

    def load(self) -> list[Transaction]:
        """The transactions, by time."""
        rng = random.Random(f"{self.seed}/{self.number}/load")  # noqa: S311 a script, no secret
        made: list[Transaction] = []
        number = 0
        while number < self.messages:
            size = min(rng.choice((1, 1, 1, 2, 3, 5, 10, 40)), self.messages - number)
            made.append(self._transaction(rng, number, size))
            number += size
        return made

    def _transaction(self, rng: random.Random, first: int, size: int) -> Transaction:
        mix = self.mix
        messages = [self._message(rng, first + n) for n in range(size)]
        chosen = [m for m in messages if rng.random() < mix.suppressed]
        before = [m.recipient for m in chosen if rng.random() < 0.5]
        return Transaction(
            at=first / self.per_second,
            messages=messages,
            rolled_back=rng.random() < mix.rolled_back,
            suppress_first=before,
            suppress_then=[m.recipient for m in chosen if m.recipient not in before],
            cancel=[m.number for m in messages if rng.random() < mix.cancelled],
        )

    def _message(self, rng: random.Random, number: int) -> Message:
        mix, pool = self.mix, max(self.messages // 3, 1)
        due = rng.uniform(0.2, 6.0) if rng.random() < mix.scheduled else None
        expires = (due or 0.0) + rng.uniform(0.5, 20.0) if rng.random() < mix.expiring else None
        return Message(
            number=number,
            recipient=self.address(rng.randrange(pool)),
            tenant=f"tenant-{rng.randrange(4)}",
            lane="bulk" if rng.random() < mix.bulk else "transactional",
            copy=self.address(pool + rng.randrange(pool)) if rng.random() < mix.copied else None,
            due_s=due,
            expires_s=expires,
        )

    def address(self, n: int) -> str:
        return f"r{self.number}-{n}@example.com"

    # Files --------------------------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        mix = Mix(**found.pop("mix"))
        disturbances = tuple(Disturbance(**d) for d in found.pop("disturbances"))
        return cls(mix=mix, disturbances=disturbances, **found)


def disturbances_of(
    seed: int,
    number: int,
    *,
    kills: int,
    lasting_s: float,
    servers: bool = True,
    weights: Mapping[str, int] = WEIGHTS,
) -> tuple[Disturbance, ...]:
    """So many kills, and freezes and cuts between them, by time."""
    rng = random.Random(f"{seed}/{number}/disturbances")  # noqa: S311
    end = max(lasting_s - 1.0, 1.0)
    made = [_kill(rng, rng.uniform(0.5, end), weights) for _ in range(kills)]
    made += [_freeze(rng, rng.uniform(0.5, end), weights) for _ in range(max(kills // 12, 1))]
    made += [_cut(rng, rng.uniform(0.5, end)) for _ in range(max(kills // 3, 1))]
    if servers:
        made += _of_servers(rng, number, end)
    return tuple(sorted(made, key=lambda d: d.at))


def _worker(rng: random.Random, weights: Mapping[str, int]) -> str:
    stage = rng.choices(list(weights), list(weights.values()))[0]
    return f"{stage}-{rng.randrange(REPLICAS[stage]) + 1}"


def _kill(rng: random.Random, at: float, weights: Mapping[str, int]) -> Disturbance:
    who = _worker(rng, weights)
    back_s = rng.choice((0.0, 0.0, 0.1, 0.5, 2.0))
    do = rng.choices(KILLS, (4, 5, 1))[0]
    if do != "kill at":
        return Disturbance(at=round(at, 3), do=do, who=who, back_s=back_s)
    point = rng.choice(POINTS[stage_of(who)])
    times = rng.choice((1, 1, 1, 2, 5))
    return Disturbance(at=round(at, 3), do=do, who=who, point=point, times=times, back_s=back_s)


def _freeze(rng: random.Random, at: float, weights: Mapping[str, int]) -> Disturbance:
    who = _worker(rng, weights)
    seconds = round(rng.choice((0.5, 2.0, 5.0, 9.0, 13.0)) * rng.uniform(0.8, 1.2), 3)
    if rng.random() < 0.5:
        return Disturbance(at=round(at, 3), do="freeze", who=who, seconds=seconds)
    point = rng.choice(POINTS[stage_of(who)])
    return Disturbance(at=round(at, 3), do="freeze at", who=who, point=point, seconds=seconds)


def _cut(rng: random.Random, at: float) -> Disturbance:
    sender = f"sender-{rng.randrange(REPLICAS['sender']) + 1}"
    database = f"{_worker(rng, WEIGHTS)}-postgres"
    link = rng.choice((f"{sender}-postgres", f"{sender}-ses", database, "sns", "kafka"))
    how = rng.choice(CUTS if link != "kafka" else ("reset", "reset", "delay"))
    share = rng.choice((0.3, 1.0))
    seconds = round(rng.uniform(0.2, 2.0), 3)
    return Disturbance(at=round(at, 3), do="cut", who=link, how=how, seconds=seconds, share=share)


def _of_servers(rng: random.Random, number: int, end: float) -> list[Disturbance]:
    """A server now and then: each costs seconds in which nothing moves."""
    at = round(rng.uniform(end * 0.2, end * 0.7), 3)
    match number % 4:
        case 0:
            return [Disturbance(at=at, do="restart postgres")]
        case 1:
            return [Disturbance(at=at, do="freeze kafka", seconds=round(rng.uniform(1, 5), 3))]
        case 2:
            return [Disturbance(at=at, do="freeze postgres", seconds=round(rng.uniform(1, 6), 3))]
        case _:
            return [Disturbance(at=at, do="restart kafka")]
