"""mail.suppressions -> memory: exactly the partitions that the sender owns, caught up and fresh before anything is decided."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from streams.domain.addresses import RecipientKey
from streams.domain.errors import BadMessage
from streams.domain.suppressions import Applied, SuppressionRecord, SuppressionSet
from streams.domain.topics import Lane
from streams.ports.sender import SuppressionFeed
from streams.runtime import metrics

log = logging.getLogger(__name__)

_MOST: Final = 20_000
_WAIT_S: Final = 0.25
# So many records are applied before others get their turn.
_TURN: Final = 1000
UNREADABLE: Final = "unreadable"
# The scheduler beats by the same clock: a heartbeat that is further ahead was written before it was set back.
_AHEAD_S: Final = 5.0
STAGE: Final = "sender"


@dataclass(slots=True, eq=False)
class _Partition:
    """One owned partition. end is the end offset of the moment it was taken over: behind it the table is caught up."""

    entries: SuppressionSet = field(default_factory=SuppressionSet)
    position: int | None = None
    end: int | None = None
    # When the newest heartbeat came in, which is what counts for one from the future.
    beaten_at: float | None = None
    told_ahead: bool = False

    @property
    def caught_up(self) -> bool:
        return self.end is not None and self.position is not None and self.position >= self.end

    def age(self, now: float) -> float:
        """Seconds since the newest heartbeat applied."""
        beat = self.entries.heartbeat
        if beat is None or self.beaten_at is None:
            return float("inf")
        return max(now - min(beat, self.beaten_at), 0.0)

    def clear(self) -> None:
        """The topic begins anew: nothing is known."""
        self.entries = SuppressionSet()
        self.position = self.end = self.beaten_at = None


class SuppressionTable:
    """What own() names is followed by follow(), called again and again. Everything else asks memory and never waits."""

    def __init__(
        self,
        feed: SuppressionFeed,
        *,
        staleness_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._feed = feed
        self._staleness_s = staleness_s
        self._clock = clock
        self._partitions: dict[int, _Partition] = {}
        export_known_labels()
        # What the feed reads, which may be a partition that was given up and taken over again meanwhile.
        self._followed: dict[int, _Partition] | None = None

    def tell_time(self, clock: Callable[[], float]) -> None:
        """From now on ages count by this clock, seconds since 1970: that of the server which dates heartbeats and expiries."""
        self._clock = clock

    def own(self, partitions: frozenset[int]) -> None:
        """From now on these. Tables of partitions that were owned before are kept, those of others are forgotten."""
        for number in self._partitions.keys() - partitions:
            del self._partitions[number]
            metrics.SENDER_SUPPRESSION_OFFSET.remove(str(number))
        for number in partitions - self._partitions.keys():
            self._partitions[number] = _Partition()
            metrics.SENDER_SUPPRESSION_OFFSET.labels(partition=str(number))

    async def follow(self) -> float:
        """Takes in what is new. Unavailable when Kafka is away: the next call takes up where this one ended."""
        if self._followed != self._partitions:
            await self._begin(dict(self._partitions))
        followed = self._followed or {}
        try:
            records, positions = await self._feed.fetch(most=_MOST, timeout_s=_WAIT_S)
        except BaseException:
            self._followed = None
            raise
        anew = self._gone_back(followed, records, positions)
        for start in range(0, len(records), _TURN):
            for record in records[start : start + _TURN]:
                if record.partition not in anew:
                    self._apply(followed[record.partition], record)
            await asyncio.sleep(0)
        for number, position in positions.items():
            if number not in anew:
                followed[number].position = position
        self._show()
        return 0.0

    def _gone_back(
        self,
        followed: dict[int, _Partition],
        records: list[SuppressionRecord],
        positions: dict[int, int],
    ) -> frozenset[int]:
        """Partitions that are read from their beginning again: the topic was made anew, or lost its end. They are emptied
        and followed anew with the next call, up to the end of that moment."""
        seen = [*positions.items(), *((r.partition, r.offset) for r in records)]
        anew = frozenset(
            number
            for number, at in seen
            if (before := followed[number].position) is not None and at < before
        )
        for number in sorted(anew):
            log.warning(
                "position of a topic went back, its partition is read anew",
                extra={"action": "suppressions.position_went_back", "partition": number},
            )
            metrics.CONSUMER_RESETS.labels(stage=STAGE).inc()
            followed[number].clear()
        if anew:
            self._followed = None
        return anew

    async def _begin(self, owned: dict[int, _Partition]) -> None:
        self._followed = None
        ends = await self._feed.follow({number: p.position for number, p in owned.items()})
        for number, end in ends.items():
            if owned[number].end is None:
                owned[number].end = end
        self._followed = owned

    def _apply(self, partition: _Partition, record: SuppressionRecord) -> None:
        try:
            applied: str = partition.entries.apply(record)
        except BadMessage as error:
            applied = UNREADABLE
            log.error(
                "suppression record is unreadable, the claim alone protects its recipient",
                extra={
                    "action": "suppressions.unreadable",
                    "partition": record.partition,
                    "offset": record.offset,
                    "reason": str(error),
                },
            )
        metrics.SENDER_SUPPRESSION_RECORDS.labels(applied=applied).inc()
        if applied == Applied.HEARTBEAT:
            self._beaten(partition, record.partition)

    def _beaten(self, partition: _Partition, number: int) -> None:
        now = self._clock()
        partition.beaten_at = now
        if (partition.entries.heartbeat or now) - now > _AHEAD_S and not partition.told_ahead:
            partition.told_ahead = True
            log.warning(
                "heartbeat is from the future, so that its arrival counts: see whether PostgreSQL's clock was set",
                extra={"action": "suppressions.heartbeat_ahead", "partition": number},
            )

    def usable(self, partition: int) -> bool:
        """Whether the partition is caught up and fresh, so that something may be decided for it."""
        found = self._partitions.get(partition)
        return (
            found is not None and found.caught_up and found.age(self._clock()) <= self._staleness_s
        )

    def missing(self) -> str | None:
        """What keeps owned partitions from being usable; None if all are."""
        now = self._clock()
        loading = sorted(n for n, p in self._partitions.items() if not p.caught_up)
        if loading:
            return f"suppressions of partitions {_list(loading)} are being read"
        stale = sorted(n for n, p in self._partitions.items() if p.age(now) > self._staleness_s)
        if stale:
            return (
                f"suppressions of partitions {_list(stale)} had no heartbeat for {self._staleness_s:g} s: "
                "see that a scheduler and a relay are running"
            )
        return None

    def hit(self, partition: int, key: RecipientKey, tenant: str, lane: Lane) -> int | None:
        """The sequence of the recipient's set, if it has a suppression in force for this tenant and lane."""
        found = self._partitions.get(partition)
        return None if found is None else found.entries.hit(key, tenant, lane, self._clock())

    def _show(self) -> None:
        now = self._clock()
        parts = self._partitions.values()
        metrics.SENDER_SUPPRESSION_ENTRIES.set(sum(len(p.entries) for p in parts))
        metrics.SENDER_SUPPRESSION_AGE.set(max((p.age(now) for p in parts), default=0.0))
        for number, partition in self._partitions.items():
            metrics.SENDER_SUPPRESSION_OFFSET.labels(partition=str(number)).set(
                partition.position or 0
            )

    async def stop(self) -> None:
        self._followed = None
        await self._feed.stop()


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def export_known_labels() -> None:
    """Known label sets are exported from the start, so that the first event is seen as a change."""
    metrics.CONSUMER_RESETS.labels(stage=STAGE)
    for applied in (*Applied, UNREADABLE):
        metrics.SENDER_SUPPRESSION_RECORDS.labels(applied=applied)
