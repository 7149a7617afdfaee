"""Makes a failing round shorter: fewer disturbances, then fewer messages, as long as it still breaks the same promise."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from crash.scenario import Disturbance, Scenario

LEAST_MESSAGES: Final = 100
# Whether a scenario fails in the same way.
Fails = Callable[[Scenario], Awaitable[bool]]


async def shrink(scenario: Scenario, fails: Fails, *, tries: int) -> Scenario:
    """The shortest scenario found with so many tries. Timing is never the same twice, so a try that holds proves little:
    what remains has failed at least once as it stands."""
    budget = _Budget(tries, fails)
    chosen = await _fewer(scenario, budget)
    return await _smaller(chosen, budget)


class _Budget:
    def __init__(self, tries: int, fails: Fails) -> None:
        self._left = tries
        self._fails = fails

    def spent(self) -> bool:
        return self._left <= 0

    async def fails(self, scenario: Scenario) -> bool:
        self._left -= 1
        return await self._fails(scenario)


async def _fewer(scenario: Scenario, budget: _Budget) -> Scenario:
    """Delta debugging: without one part after the other, in finer and finer parts."""
    kept: Sequence[Disturbance] = scenario.disturbances
    parts = 2
    if kept and not budget.spent() and await budget.fails(scenario.with_disturbances(())):
        return scenario.with_disturbances(())
    while len(kept) > 1 and not budget.spent():
        size = max(len(kept) // parts, 1)
        for start in range(0, len(kept), size):
            fewer = [*kept[:start], *kept[start + size :]]
            if budget.spent():
                break
            if await budget.fails(scenario.with_disturbances(fewer)):
                kept, parts = fewer, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(kept))
    return scenario.with_disturbances(kept)


async def _smaller(scenario: Scenario, budget: _Budget) -> Scenario:
    """Half of the messages, and what disturbs within their time."""
    while scenario.messages // 2 >= LEAST_MESSAGES and not budget.spent():
        half = replace(scenario, messages=scenario.messages // 2)
        within = [d for d in half.disturbances if d.at < half.lasting_s]
        half = half.with_disturbances(within)
        if not await budget.fails(half):
            break
        scenario = half
    return scenario
