"""What a round is to be, from a seed alone: disturbances with their moments, and the shape of the load."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self

from crash.traps import POINTS

RELAYS: Final = ("relay-1", "relay-2")
# Resolved when it is performed: the relay that streams then.
ACTIVE: Final = "active"
KAFKA_LINK: Final = "kafka"
CUTS: Final = ("reset", "refuse", "delay", "mute", "freeze", "truncate")
# Of connections to Kafka also: what is on its way arrives late, beside newer connections.
KAFKA_CUTS: Final = (*CUTS, "late", "late")
THEFTS: Final = ("drop slot", "advance slot", "remake slot")
# Deeds that end a process for good, and those that break connections.
KILLS: Final = ("kill", "kill at", "kill postgres", "kill kafka")
_POINTS: Final = {
    "wal": POINTS["relay"],
    "poll": tuple(p for p in POINTS["relay"] if p.endswith((" append", " acknowledge"))),
}
# Of 100 disturbances, roughly.
WEIGHTS: Final = {
    "kill active": 24,
    "kill any": 8,
    "kill at": 16,
    "term": 6,
    "cut sql": 10,
    "cut replication": 12,
    "cut kafka": 14,
    "freeze": 8,
    "freeze at": 2,
    # While records are on their way to Kafka and come late, the relay has to give them up.
    "give up": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One fault. at: seconds from the start of the round; who: a relay, link or server; back_s: until it is started again."""

    at: float
    do: str
    who: str = ""
    point: str = ""
    how: str = ""
    seconds: float = 0.0
    back_s: float = 0.0

    @property
    def name(self) -> str:
        """The kind, for counting."""
        if self.do == "cut":
            return f"cut {self.who.rpartition('-')[2]}: {self.how}"
        return (
            f"{self.do} relay"
            if self.do in ("kill", "kill at", "term", "freeze", "freeze at")
            else self.do
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The shape of what is written. per_second: transactions of all writers together; shares of them."""

    writers: int = 6
    per_second: float = 30.0
    keys: int = 300
    recipients: int = 40
    suppressing: float = 0.3
    rolled_back: float = 0.08
    partly_rolled_back: float = 0.15
    lasting: float = 0.02
    asynchronous: float = 0.3
    sizes: tuple[int, ...] = (1, 1, 1, 1, 2, 3, 5, 10, 40, 200)
    largest: int = 1000
    # Of this share of transactions.
    large: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round. lasting_s: how long is written and disturbed."""

    seed: int
    number: int
    lasting_s: float
    mode: str = "wal"
    load: Load = field(default_factory=Load)
    disturbances: tuple[Disturbance, ...] = ()
    mutation: str | None = None
    # Until what a producer that was given up left behind is put into the feed again, and a little.
    heal_always: bool = False

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        found = json.loads(path.read_text(encoding="utf-8"))
        load = found.pop("load")
        load["sizes"] = tuple(load["sizes"])
        disturbances = tuple(Disturbance(**d) for d in found.pop("disturbances"))
        return cls(load=Load(**load), disturbances=disturbances, **found)


def plan(seed: int, number: int, *, disturbances: int, lasting_s: float, mode: str = "wal") -> Plan:
    """So many disturbances of relays and connections, and in most rounds one of a server or of the slot."""
    rng = random.Random(f"{seed}/{number}/relay")  # noqa: S311 moments, no secrets
    end = max(lasting_s - 1.0, 1.0)
    kinds = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=disturbances)
    made: list[Disturbance] = []
    for kind in kinds:
        at = round(rng.uniform(1.0, end), 3)
        made += _give_up(rng, at, mode) if kind == "give up" else [_one(rng, kind, at, mode)]
    made += _of_servers(rng, number, end, mode)
    return Plan(
        seed=seed,
        number=number,
        lasting_s=lasting_s,
        mode=mode,
        disturbances=tuple(sorted(made, key=lambda d: d.at)),
    )


def _one(rng: random.Random, kind: str, at: float, mode: str) -> Disturbance:
    relay = rng.choice(RELAYS)
    back_s = rng.choice((0.0, 0.0, 0.1, 0.5, 2.0))
    seconds = round(rng.uniform(0.2, 2.0), 3)
    match kind:
        case "kill active":
            return Disturbance(at=at, do="kill", who=ACTIVE, back_s=back_s)
        case "kill any":
            return Disturbance(at=at, do="kill", who=relay, back_s=back_s)
        case "kill at" | "freeze at":
            point = rng.choice(_POINTS[mode])
            frozen = round(rng.choice((1.0, 3.0, 11.0)) * rng.uniform(0.9, 1.1), 3)
            return Disturbance(
                at=at, do=kind, who=ACTIVE, point=point, back_s=back_s, seconds=frozen
            )
        case "term":
            return Disturbance(at=at, do="term", who=ACTIVE, back_s=back_s)
        case "freeze":
            frozen = round(rng.choice((1.0, 1.0, 2.0, 4.0, 8.0, 11.5)) * rng.uniform(0.9, 1.1), 3)
            return Disturbance(at=at, do="freeze", who=ACTIVE, seconds=frozen)
        case "cut kafka":
            how = rng.choice(KAFKA_CUTS)
            return Disturbance(at=at, do="cut", who=KAFKA_LINK, how=how, seconds=seconds)
        case _:
            link = kind.removeprefix("cut ") if mode == "wal" else "sql"
            return Disturbance(
                at=at, do="cut", who=f"{ACTIVE}-{link}", how=rng.choice(CUTS), seconds=seconds
            )


def _give_up(rng: random.Random, at: float, mode: str) -> list[Disturbance]:
    link = f"{ACTIVE}-replication" if mode == "wal" else f"{ACTIVE}-sql"
    then = round(at + rng.uniform(0.3, 1.0), 3)
    return [
        Disturbance(at=at, do="cut", who=KAFKA_LINK, how="late", seconds=3.0),
        Disturbance(at=then, do="cut", who=link, how="reset"),
    ]


def _of_servers(rng: random.Random, number: int, end: float, mode: str) -> list[Disturbance]:
    """Each costs seconds in which nothing else is tested, so one a round, and every third round the slot."""
    at = round(rng.uniform(end * 0.1, end * 0.5), 3)
    deeds: Mapping[int, Disturbance] = {
        0: Disturbance(at=at, do="kill postgres"),
        1: Disturbance(at=at, do="kill kafka"),
        2: Disturbance(at=at, do="restart postgres"),
        3: Disturbance(at=at, do="freeze kafka", seconds=round(rng.uniform(1, 5), 3)),
        4: Disturbance(at=at, do="freeze postgres", seconds=round(rng.uniform(1, 5), 3)),
    }
    made = [deeds[number % 5]]
    if number % 3 == 2 and mode == "wal":
        later = round(rng.uniform(end * 0.6, end * 0.9), 3)
        made.append(Disturbance(at=later, do=rng.choice(THEFTS)))
    return made
