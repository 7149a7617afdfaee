"""Runs many variants side by side: most of each is waiting. Those whose timing is judged, or that need processes, have less beside them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tests.cases.loading import Group
from tests.cases.send_scene import needs_processes

SLOTS: Final = 8
PROCESSES: Final = 4


def weight(group: Group) -> int:
    """How many slots it takes; all of them where nothing else may run."""
    (variant,) = group.variants
    expect, limits = variant["expect"], variant.get("limits", {})
    if expect.get("windows") or "enforced" in limits:
        return SLOTS
    return PROCESSES if needs_processes(variant) else 1


class SendQueue:
    """Begins every group that it was told of with the first one that is asked for."""

    def __init__(
        self, run: Callable[[Group], Awaitable[list[str]]], expected: Sequence[Group]
    ) -> None:
        self._run = run
        # Light ones first: they fill the time that others wait.
        self._expected = sorted(expected, key=weight)
        self._free = SLOTS
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()
        # By identity, each with its group: another one may not be given the place of one that is gone.
        self._begun: dict[int, tuple[Group, asyncio.Task[list[str]]]] = {}

    async def result(self, group: Group) -> list[str]:
        """The report of this group; one that nobody expected is run now."""
        for one in (*self._expected, group):
            if id(one) not in self._begun:
                self._begun[id(one)] = (one, asyncio.create_task(self._in_turn(one)))
        return await self._begun[id(group)][1]

    async def stop(self) -> None:
        tasks = [task for _, task in self._begun.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _in_turn(self, group: Group) -> list[str]:
        needed = weight(group)
        # In order, so that a heavy one is not passed for ever.
        async with self._turn, self._changed:
            await self._changed.wait_for(lambda: self._free >= needed)
            self._free -= needed
        try:
            return await self._run(group)
        finally:
            async with self._changed:
                self._free += needed
                self._changed.notify_all()
