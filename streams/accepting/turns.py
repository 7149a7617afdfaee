"""A bounded number of reads of the database at a time, and of those that wait for a turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.domain.errors import Overloaded


class Turns:
    """at_once may go on together; most may wait, the next one is Overloaded at once."""

    def __init__(self, *, at_once: int, most: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most = most
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._waiting >= self._most:
            raise Overloaded(f"{self._most} requests wait for the database")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()
