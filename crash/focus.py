"""Rounds in which a mutation shows soon, and how fast each was found."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crash.mutations import MUTATIONS, Mutation
from crash.rounds import Round, Rounds
from crash.scenario import REPLICAS, Disturbance, Scenario

MESSAGES: Final = 900
PER_SECOND: Final = 60.0
LONGEST_S: Final = 300.0
_OUTAGE_S: Final = 6.0
_FROZEN_S: Final = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How fast a mutation was found, from the first message on; kinds: what the verdict called it, none if it was not found."""

    mutation: str
    seconds: float
    rounds: int
    kinds: tuple[str, ...]
    example: str


def scenario_for(name: str, *, seed: int, number: int, messages: int = MESSAGES) -> Scenario:
    """A round with what this mutation cannot stand."""
    mutation = MUTATIONS[name]
    scenario = Scenario(
        seed=seed,
        number=number,
        messages=messages,
        per_second=PER_SECOND,
        mix=mutation.mix,
        mutation=name,
    )
    rng = random.Random(f"{seed}/{number}/{name}")  # noqa: S311 moments, no secrets
    chosen = sorted(_focus(rng, mutation, scenario.lasting_s), key=lambda d: d.at)
    return scenario.with_disturbances(chosen)


def _focus(rng: random.Random, mutation: Mutation, lasting_s: float) -> Iterator[Disturbance]:
    for kind, count in mutation.focus.items():
        for n in range(count):
            at = round(lasting_s * (n + rng.random()) / count, 3)
            who = f"{mutation.stage}-{n % REPLICAS[mutation.stage] + 1}"
            point = rng.choice(mutation.points) if mutation.points else ""
            match kind:
                case "kill sender":
                    yield Disturbance(at=at, do="kill", who=f"sender-{n % REPLICAS['sender'] + 1}")
                case "kill at":
                    yield Disturbance(at=at, do=kind, who=who, point=point)
                case "freeze at":
                    seconds = round(rng.uniform(*mutation.freeze_s), 3)
                    yield Disturbance(at=at, do=kind, who=who, point=point, seconds=seconds)
                case "outage":
                    yield Disturbance(at=lasting_s / 3, do=kind, seconds=_OUTAGE_S)
                case "kill while kafka is frozen":
                    yield Disturbance(at=at, do="freeze kafka", seconds=_FROZEN_S)
                    for replica in range(REPLICAS[mutation.stage]):
                        killed = f"{mutation.stage}-{replica + 1}"
                        yield Disturbance(at=at + 1.5, do="kill", who=killed)
                case _:
                    yield Disturbance(at=at, do=kind, who=who)


async def find(rounds: Rounds, name: str, *, seed: int) -> tuple[Found, Round]:
    """Rounds until the mutation shows, or for five minutes."""
    started = time.monotonic()
    number = 0
    while True:
        done = await rounds.run(scenario_for(name, seed=seed, number=number))
        number += 1
        seconds = time.monotonic() - started
        kinds = sorted({o.kind for o in done.verdict.offences})
        if kinds or seconds > LONGEST_S:
            example = done.verdict.offences[0].words if kinds else "nothing"
            found = Found(
                mutation=name,
                seconds=round(seconds, 1),
                rounds=number,
                kinds=tuple(kinds),
                example=example,
            )
            return found, done
