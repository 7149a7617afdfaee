"""Many rounds, whose counts add up over runs in a folder."""

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from crash.campaign import commit_of_code
from relayfuzz.plan import Plan, plan
from relayfuzz.rounds import Round
from relayfuzz.verdict import ZERO

# One every 1.3 s or so: more would hit what has not yet recovered.
ROUND_DISTURBANCES: Final = 36
ROUND_S: Final = 45.0
# Of all disturbances, those that count as a kill or a cut.
_COUNTING: Final = 0.8
_LEAST: Final = 4
_COUNTERS: Final = ("numbers", "counts", "points", "commits")


@dataclass(slots=True, kw_only=True)
class State:
    """What was done so far. commits: the code that it was done with, with the kills and cuts of each."""

    seed: int
    next_round: int = 0
    kills: int = 0
    cuts: int = 0
    seconds: float = 0.0
    oldest_duplicate_s: float = 0.0
    oldest_recovered_s: float = 0.0
    numbers: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    failed_rounds: list[int] = field(default_factory=list)

    def add(self, done: Round, commit: str) -> None:
        self.next_round = done.plan.number + 1
        self.kills += done.kills
        self.cuts += done.cuts
        self.seconds += done.seconds
        self.oldest_duplicate_s = max(self.oldest_duplicate_s, done.verdict.oldest_duplicate_s)
        self.oldest_recovered_s = max(self.oldest_recovered_s, done.verdict.oldest_recovered_s)
        self.numbers.update(done.verdict.numbers)
        self.counts.update(done.counts)
        self.points.update(done.points)
        self.commits[commit] += done.kills + done.cuts
        if not done.holds:
            self.failed_rounds.append(done.plan.number)

    @property
    def last_line(self) -> dict[str, Any]:
        """What the command prints at its end."""
        return {
            "kills": self.kills,
            "cuts": self.cuts,
            "rows": self.numbers["rows"],
            **{name: self.numbers[name] for name in ZERO},
            "duplicates": self.numbers["duplicates"],
            "duplicates_of_recoveries": self.numbers["duplicates_of_recoveries"],
            "oldest_duplicate_ms": _ms(self.oldest_duplicate_s),
            "oldest_recovered_ms": _ms(self.oldest_recovered_s),
            "recoveries": self.numbers["recoveries"],
            "given_up_suppressions": self.numbers["given_up_suppressions"],
            "healed_by_reader": self.numbers["healed_by_reader"],
            "rolled_back_rows": self.numbers["rolled_back_rows"],
            "sessions": self.numbers["sessions"],
            "rounds": self.next_round,
            "failed_rounds": self.failed_rounds,
            "seconds": round(self.seconds),
            "seed": self.seed,
            "faults": dict(sorted(self.counts.items())),
            "points": dict(sorted(self.points.items())),
        }

    @property
    def holds(self) -> bool:
        return not self.failed_rounds

    # Files --------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        draft = folder / "relay-state.json.draft"
        # asdict() makes nonsense of a Counter.
        fields_now = {f.name: getattr(self, f.name) for f in fields(self)}
        draft.write_text(json.dumps(fields_now, indent=1), encoding="utf-8")
        draft.rename(folder / "relay-state.json")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None where nothing was done yet."""
        path = folder / "relay-state.json"
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name in _COUNTERS:
            found[name] = Counter(found[name])
        return cls(**found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """When it is enough: so many kills and cuts, or the time."""

    kills: int
    minutes: float | None = None
    mode: str = "wal"

    def reached(self, state: State) -> bool:
        return state.kills + state.cuts >= self.kills

    def next_round(self, state: State) -> Plan:
        """As large as what is left, at most 45 s."""
        left = self.kills - state.kills - state.cuts
        disturbances = max(_LEAST, min(ROUND_DISTURBANCES, int(left / _COUNTING) + 1))
        return plan(
            state.seed,
            state.next_round,
            disturbances=disturbances,
            lasting_s=max(5.0, ROUND_S * disturbances / ROUND_DISTURBANCES),
            mode=self.mode,
        )


async def run(
    perform: Callable[[Plan], Awaitable[Round]],
    state: State,
    goal: Goal,
    *,
    told: Callable[[Round], None],
    folder: Path | None,
) -> Round | None:
    """Rounds until the goal is reached; the round that broke a promise, which is the last."""
    started = time.monotonic()
    commit = commit_of_code()
    while not goal.reached(state):
        if goal.minutes is not None and time.monotonic() - started > goal.minutes * 60:
            return None
        done = await perform(goal.next_round(state))
        state.add(done, commit)
        if folder is not None:
            state.write(folder)
        told(done)
        if not done.holds:
            return done
    return None


def _ms(seconds: float) -> int | None:
    """None for what JSON cannot say."""
    return None if seconds == float("inf") else round(seconds * 1000)
