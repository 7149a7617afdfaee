"""Whether pointers move on although there are some: a member of a group can be alive, polled, and stuck for ever."""

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from streams.domain.errors import Unavailable
from streams.domain.records import TopicPartition
from streams.domain.topics import Lane
from streams.ports.sender import Place, PointerFeed
from streams.runtime import metrics
from streams.runtime.lifecycle import Health

log = logging.getLogger(__name__)

DUTY: Final = "pointers"
LOOK_EVERY_S: Final = 3.0
# After so long without progress the group is joined anew; liveness fails later, if that did not help.
REJOIN_AFTER_S: Final = 20.0


class Progress:
    """Standing still is: records wait in a lane that is open and the position stays; the group is joined and tells no
    partitions; commits fail. A Kafka that cannot be asked is no standstill: a restart would not mend it."""

    def __init__(
        self,
        *,
        feed: PointerFeed,
        health: Health,
        open_lanes: Callable[[], Collection[Lane]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed = feed
        self._health = health
        self._open_lanes = open_lanes
        self._clock = clock
        self._since: dict[TopicPartition, tuple[int, float]] = {}
        self._waiting_since: float | None = None
        self._failing_since: float | None = None
        self._rejoined_at = clock()

    def assignment(self, *, known: bool) -> None:
        """Whether the group has told which partitions are ours."""
        if known:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self._clock()
        self._since.clear()

    def commits(self, *, work: bool) -> None:
        """Whether commits go through."""
        if work:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = self._clock()

    async def look(self) -> float:
        """One look; joins the group anew where that may help."""
        try:
            places = await self._feed.places()
        except Unavailable:
            self._begin_anew()
            self._health.beat(DUTY)
            return LOOK_EVERY_S
        now = self._clock()
        still = self._still_for(places, now)
        if still < LOOK_EVERY_S * 2:
            self._health.beat(DUTY)
        elif still > REJOIN_AFTER_S and now - self._rejoined_at > REJOIN_AFTER_S:
            self._rejoined_at = now
            metrics.SENDER_REJOINS.inc()
            log.error(
                "pointers wait and none is read, the group is joined anew",
                extra={"action": "sender.stuck", "seconds": round(still)},
            )
            await self._feed.stop()
        return LOOK_EVERY_S

    def _begin_anew(self) -> None:
        """What stood still while Kafka could not be asked says nothing of the group."""
        self._since.clear()
        self._failing_since = None
        if self._waiting_since is not None:
            self._waiting_since = self._clock()

    def _still_for(self, places: Collection[Place], now: float) -> float:
        lanes = set(self._open_lanes())
        seen: dict[TopicPartition, tuple[int, float]] = {}
        for place in places:
            if place.lane in lanes and place.position < place.end:
                position, since = self._since.get(place.topic_partition, (-1, now))
                seen[place.topic_partition] = (
                    place.position,
                    since if position == place.position else now,
                )
        self._since = seen
        sinces = [since for _, since in seen.values()]
        sinces += [s for s in (self._waiting_since, self._failing_since) if s is not None]
        return max((now - since for since in sinces), default=0.0)
