"""The age of the oldest pending row of a lane, found by walking the ids forward."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from streams.domain.schedule import first_id_of
from streams.domain.topics import Lane
from streams.ports.scheduler import Schedule


class OldestPendingSearch:
    """Walks the ids forward, past what is done: an id is passed once, so that this is cheap without an index on the state."""

    # Transactions commit out of the order of their ids: the walk stays behind the newest.
    _behind: Final = timedelta(seconds=30)
    _first_look_back: Final = timedelta(days=1)
    _pages: Final = 5
    _page: Final = 5000

    def __init__(self, schedule: Schedule, lane: Lane) -> None:
        self._schedule = schedule
        self._lane = lane
        self._start: UUID | None = None

    async def age(self, now: datetime) -> float | None:
        """Seconds since the oldest pending row was due, 0 without one; None while the walk is not at its end yet."""
        at = self._start or first_id_of(now - self._first_look_back)
        newest_passed = first_id_of(now - self._behind)
        for _ in range(self._pages):
            found = await self._schedule.oldest_pending(self._lane, start=at, limit=self._page)
            at_end = found is None or (found.age is None and found.id == at)
            if found is not None:
                at = found.id
                self._start = min(at, newest_passed)
            if at_end:
                return 0.0
            if found is not None and found.age is not None:
                return found.age
        return None
