"""Compares the salt of this process with the database's, and goes on trying while the database is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from streams.runtime.lifecycle import Health, run_loop

EVERY_S: Final = 5.0


class SaltCheck:
    """A stage of its own beside the others: not ready until compared; Misconfigured, which ends the process, if they differ."""

    name: Final = "salt"

    def __init__(self, compare: Callable[[], Awaitable[None]]) -> None:
        self.health = Health(stage=self.name)
        self._compare = compare
        self._stopping = asyncio.Event()
        self._compared = False

    async def start(self) -> None:
        """Waits for nothing: events are taken while the database is away."""
        self._stopping.clear()
        self.health.not_ready("salt", "is not compared with the database's yet")

    async def run(self) -> None:
        await run_loop(self._step, name="compare", health=self.health, stopping=self._stopping)

    async def _step(self) -> float:
        if not self._compared:
            await self._compare()
            self._compared = True
            self.health.ready("salt")
        return EVERY_S

    async def stop(self) -> None:
        self._stopping.set()
