"""Rounds in which a mutation shows soon, and how fast each was found."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from relayfuzz.mutations import MUTATIONS, plan_for
from relayfuzz.plan import Plan
from relayfuzz.rounds import Round

LONGEST_S: Final = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How fast a mutation was found, from the start of its first round on; kinds: what the verdict called it, of what shows it."""

    mutation: str
    seconds: float
    rounds: int
    kinds: tuple[str, ...]
    example: str


async def find(
    perform: Callable[[Plan], Awaitable[Round]], name: str, *, seed: int
) -> tuple[Found, Round]:
    """Rounds until the mutation shows, or for four minutes."""
    started = time.monotonic()
    number = 0
    while True:
        done = await perform(plan_for(name, seed=seed, number=number))
        number += 1
        seconds = time.monotonic() - started
        kinds = tuple(sorted(done.kinds & set(MUTATIONS[name].shows_as)))
        if kinds or seconds > LONGEST_S:
            words = [o.words for o in done.verdict.offences if o.kind in kinds]
            found = Found(
                mutation=name,
                seconds=round(seconds, 1),
                rounds=number,
                kinds=kinds,
                example=(words or [done.stopped or "nothing"])[0],
            )
            return found, done
