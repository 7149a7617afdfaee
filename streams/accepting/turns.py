"""A bounded number of uses of the database at a time, and of requests that wait for a turn."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from streams.domain.errors import Overloaded

Result = TypeVar("Result")


class Turns:
    """at_once may go on together; most may wait, the next one is Overloaded at once.

    Work that has begun is never cancelled, whoever gives up waiting for it: it keeps its connection until the server has answered
    or a time-out of the store ends it, and holds its turn as long, so that turns never outnumber connections.
    """

    def __init__(self, *, at_once: int, most: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most = most
        self._waiting = 0
        self._is_open = True
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """What the work gives, once it is its turn."""
        if self._waiting >= self._most:
            raise Overloaded(f"{self._most} requests wait for the database")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        if not self._is_open:
            self._free.release()  # the next one that waits hears it too
            raise Overloaded("this process is stopping")
        task = asyncio.create_task(work())
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        self._free.release()
        if not task.cancelled():
            task.exception()  # whoever asked may have given up

    def open(self) -> None:
        self._is_open = True

    async def close(self, *, within_s: float) -> None:
        """Nothing begins any more; what is under way ends, or is broken off."""
        self._is_open = False
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=within_s)
            for task in late:
                task.cancel()
