"""Many rounds, whose counts add up over runs in a folder."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

from crash.rounds import Round, Rounds
from crash.scenario import Mix, Scenario, disturbances_of
from crash.verdict import ZERO

LEAST_MESSAGES: Final = 100
ROUND_MESSAGES: Final = 10_000


@dataclass(slots=True, kw_only=True)
class State:
    """What was done so far. commits: the code that it was done with, with the kills of each."""

    seed: int
    next_round: int = 0
    kills: int = 0
    seconds: float = 0.0
    numbers: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    failed_rounds: list[int] = field(default_factory=list)
    ambiguous_most: int = 0

    def add(self, done: Round, commit: str) -> None:
        self.next_round = done.scenario.number + 1
        self.kills += done.kills
        self.seconds += done.seconds
        self.numbers.update(done.verdict.numbers)
        self.counts.update(done.counts)
        self.points.update(done.points)
        self.commits[commit] += done.kills
        if not done.holds:
            self.failed_rounds.append(done.scenario.number)

    @property
    def last_line(self) -> dict[str, Any]:
        """What the command prints at its end."""
        return {
            "kills": self.kills,
            "messages": self.numbers["messages"],
            **{name: self.numbers[name] for name in ZERO},
            "ambiguous_ever": self.numbers["ambiguous_ever"],
            "in_flight_at_kills": self.numbers["in_flight_at_kills"],
            "unknown_answers": self.numbers["unknown_answers"],
            "stale_refused": self.numbers["stale_refused"],
            "settled_by_hand": self.numbers["settled_by_hand"],
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
        draft = folder / "state.json.draft"
        # asdict() makes nonsense of a Counter.
        fields_now = {f.name: getattr(self, f.name) for f in fields(self)}
        draft.write_text(json.dumps(fields_now, indent=1), encoding="utf-8")
        draft.rename(folder / "state.json")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None where nothing was done yet."""
        path = folder / "state.json"
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name in ("numbers", "counts", "points", "commits"):
            found[name] = Counter(found[name])
        return cls(**found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """When it is enough: all of the counts that are given, or the time."""

    messages: int
    kills: int
    minutes: float | None = None

    def reached(self, state: State) -> bool:
        return state.numbers["messages"] >= self.messages and state.kills >= self.kills

    def next_round(self, state: State, per_second: float, mix: Mix) -> Scenario:
        """As large as what is left, at most 10,000 messages, with as many kills as keeps the two together."""
        left = max(self.messages - state.numbers["messages"], LEAST_MESSAGES)
        # Some are rolled back.
        messages = min(ROUND_MESSAGES, int(left * 1.12))
        kills_left = max(self.kills - state.kills, 0)
        rounds_left = max(left / messages, 1.0)
        # A term is no kill, and a killed worker may be down when the next one is meant for it.
        kills = int(kills_left / rounds_left * 1.12) + 1 if kills_left else 0
        scenario = Scenario(
            seed=state.seed,
            number=state.next_round,
            messages=messages,
            per_second=per_second,
            mix=mix,
        )
        return scenario.with_disturbances(
            disturbances_of(state.seed, state.next_round, kills=kills, lasting_s=scenario.lasting_s)
        )


async def run(
    rounds: Rounds,
    state: State,
    goal: Goal,
    *,
    per_second: float,
    mix: Mix,
    told: Callable[[Round], None],
    folder: Path | None,
) -> Round | None:
    """Rounds until the goal is reached; the round that broke a promise, which is the last."""
    started = time.monotonic()
    commit = commit_of_code()
    while not goal.reached(state):
        if goal.minutes is not None and time.monotonic() - started > goal.minutes * 60:
            return None
        done = await rounds.run(goal.next_round(state, per_second, mix))
        state.add(done, commit)
        if folder is not None:
            state.write(folder)
        told(done)
        if not done.holds:
            return done
    return None


def commit_of_code() -> str:
    """The commit that runs, with `+` if files differ from it; `unknown` outside of a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "streams", "sql")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
