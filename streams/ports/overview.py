"""What the overview asks of the servers, in bounded time each."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from streams.domain.overview import Lag, Polling, Rate, RelaySlot, Waiting
from streams.domain.schedule import Backlog
from streams.domain.topics import Lane


class OverviewDatabase(Protocol):
    """Methods raise Unavailable or Misconfigured; none reads a large table."""

    async def backlog(self, *, heartbeats_every: timedelta) -> Backlog:
        """What waits now, of each kind."""

    async def waiting(self) -> Waiting:
        """What the small tables say of it."""

    async def oldest_pending(self, lane: Lane) -> float | None:
        """Seconds that the oldest pending row found has been due; None if the samples have none."""

    async def pauses(self) -> Sequence[Mapping[str, Any]]:
        """Those in force."""

    async def rates(self) -> Sequence[Rate]:
        """The shared rates with their circuits."""

    async def slot(self) -> RelaySlot | None:
        """The relay's slot, None without one."""

    async def polling(self) -> Polling:
        """Relays that read the feed by polling."""


class OverviewKafka(Protocol):
    """Joins no group and commits nothing."""

    async def lags(self, groups: Mapping[str, Sequence[str]]) -> Sequence[Lag]:
        """Of each group and each of its topics."""

    async def heartbeat_ages(self, topic: str) -> Mapping[int, float | None]:
        """By partition, seconds since the newest heartbeat; None where none is near the end."""
