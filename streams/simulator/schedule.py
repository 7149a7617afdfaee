"""What is to be done later, in order of time; it can be held."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

Act = Callable[[], None]


class Schedule:
    """One timer for everything that is due."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Act]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._holding = False

    def __len__(self) -> int:
        return len(self._due)

    @property
    def holding(self) -> bool:
        return self._holding

    def hold(self) -> None:
        """Do nothing until `release`; what falls due meanwhile waits."""
        self._holding = True
        self._arm()

    def release(self) -> None:
        self._holding = False
        self._arm()

    def stop(self) -> None:
        self._due.clear()
        self._arm()

    def after(self, seconds: float, act: Act) -> None:
        due = asyncio.get_running_loop().time() + seconds
        heapq.heappush(self._due, (due, next(self._order), act))
        if self._due[0][0] == due:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self._holding:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._fire)

    def _fire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        self._arm()
