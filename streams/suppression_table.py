"""mail.suppressions -> memory: exactly the partitions that the sender owns, caught up and fresh before anything is decided."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from streams.domain.addresses import RecipientKey
from streams.domain.suppressions import PartitionLost, Span, SuppressionPage, SuppressionSet
from streams.domain.topics import Lane
from streams.ports.sender import SuppressionFeed
from streams.runtime import metrics

log = logging.getLogger(__name__)

_WAIT_S: Final = 0.25
# The scheduler beats by the same clock: a heartbeat that is further ahead was written before it was set back.
_AHEAD_S: Final = 5.0
STAGE: Final = "sender"
APPLIED: Final = ("changed", "heartbeat", "older", "unreadable")
REPUBLISH: Final = '"mailstreams suppressions republish"'


@dataclass(slots=True, eq=False)
class _Partition:
    """One owned partition. end is the end offset of the moment it was taken over: behind it the table is caught up."""

    entries: SuppressionSet = field(default_factory=SuppressionSet)
    position: int | None = None
    end: int | None = None
    # When the newest heartbeat came in, which is what counts for one from the future.
    beaten_at: float | None = None
    told_ahead: bool = False
    # Why and when what had been read turned out to be gone; until everything was put into the topic again.
    lost: str | None = None
    lost_at: float = 0.0

    @property
    def caught_up(self) -> bool:
        return (
            self.lost is None
            and self.end is not None
            and self.position is not None
            and self.position >= self.end
        )

    def age(self, now: float) -> float:
        """Seconds since the newest heartbeat applied."""
        beat = self.entries.heartbeat
        if beat is None or self.beaten_at is None:
            return float("inf")
        return max(now - min(beat, self.beaten_at), 0.0)

    def lose(self, why: str, now: float) -> None:
        """The topic begins anew: nothing is known."""
        self.entries = SuppressionSet()
        self.position = self.end = self.beaten_at = None
        self.lost, self.lost_at = why, now

    def regain(self) -> None:
        """Everything was put into the topic again, if a heartbeat says so."""
        if self.lost is not None and (self.entries.republished or 0.0) >= self.lost_at:
            self.lost = None


class SuppressionTable:
    """What own() names is followed by follow(), called again and again. Everything else asks memory and never waits.

    goes_on: lanes that a stale table does not stop. partitions: how many the topic has to have, where that is known.
    """

    def __init__(
        self,
        feed: SuppressionFeed,
        *,
        staleness_s: float,
        goes_on: Collection[Lane] = (),
        partitions: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._feed = feed
        self._staleness_s = staleness_s
        self._goes_on = frozenset(goes_on)
        self._expected = partitions
        self._uneven: str | None = None
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

    def compare(self, counts: Mapping[str, int]) -> None:
        """How many partitions the topics of pointers have: a recipient has one number in all topics, or is looked up in vain."""
        mine = self._feed.partitions()
        known = {**counts, **({} if mine is None else {"the suppressions": mine})}
        if self._expected is not None:
            known["MAILSTREAMS_PARTITIONS"] = self._expected
        told = ", ".join(f"{name} {count}" for name, count in known.items())
        self._uneven = (
            None
            if len(set(known.values())) <= 1
            else f"numbers of partitions differ ({told}), so that suppressions stand elsewhere: give all topics keyed by "
            f"recipient the same number, set MAILSTREAMS_PARTITIONS to it, start all stages again, and run {REPUBLISH}"
        )

    async def follow(self) -> float:
        """Takes in what is new. Unavailable when Kafka is away: the next call takes up where this one ended."""
        if self._followed != self._partitions:
            await self._begin(dict(self._partitions))
        followed = self._followed
        if followed is None:
            return 0.0
        try:
            found = await self._feed.fetch(timeout_s=_WAIT_S)
        except BaseException:
            self._followed = None
            raise
        for one in found:
            partition = followed[one.partition]
            if isinstance(one, PartitionLost):
                self._lose(one.partition, partition, one.why)
            else:
                self._apply(partition, one)
                await asyncio.sleep(0)
        self._show()
        return 0.0

    async def _begin(self, owned: dict[int, _Partition]) -> None:
        self._followed = None
        spans = await self._feed.follow({number: p.position for number, p in owned.items()})
        self._followed = owned
        for number, span in spans.items():
            self._take_up(number, owned[number], span)

    def _take_up(self, number: int, partition: _Partition, span: Span) -> None:
        at = partition.position
        if at is not None and not span.start <= at <= span.end:
            why = f"offset {at} is not there any more, only {span.start} to {span.end}"
            self._lose(number, partition, why)
            return
        if partition.end is None:
            partition.end = span.end
        if at is None:
            partition.position = span.start

    def _lose(self, number: int, partition: _Partition, why: str) -> None:
        """It is read anew with the next call, and is not asked before everything was put into the topic again."""
        log.error(
            "the suppression topic lost what was read of it, nothing is sent before it is filled again",
            extra={
                "action": "suppressions.lost",
                "partition": number,
                "reason": why,
                "run": "mailstreams suppressions republish",
            },
        )
        metrics.CONSUMER_RESETS.labels(stage=STAGE).inc()
        partition.lose(why, self._clock())
        self._followed = None

    def _apply(self, partition: _Partition, page: SuppressionPage) -> None:
        applied = partition.entries.apply(page)
        partition.position = page.position
        for offset, reason in applied.unreadable:
            log.error(
                "suppression record is unreadable, the claim alone protects its recipient",
                extra={
                    "action": "suppressions.unreadable",
                    "partition": page.partition,
                    "offset": offset,
                    "reason": reason,
                },
            )
        counts = (applied.changed, applied.heartbeats, applied.older, len(applied.unreadable))
        for name, count in zip(APPLIED, counts, strict=True):
            metrics.SENDER_SUPPRESSION_RECORDS.labels(applied=name).inc(count)
        if applied.heartbeats:
            self._beaten(partition, page.partition)

    def _beaten(self, partition: _Partition, number: int) -> None:
        partition.regain()
        now = self._clock()
        partition.beaten_at = now
        if (partition.entries.heartbeat or now) - now > _AHEAD_S and not partition.told_ahead:
            partition.told_ahead = True
            log.warning(
                "heartbeat is from the future, so that its arrival counts: see whether PostgreSQL's clock was set",
                extra={"action": "suppressions.heartbeat_ahead", "partition": number},
            )

    def usable(self, partition: int, lane: Lane) -> bool:
        """Whether the partition is caught up and fresh enough for the lane, so that something may be decided for it."""
        found = self._partitions.get(partition)
        return (
            found is not None
            and self._uneven is None
            and found.caught_up
            and (lane in self._goes_on or found.age(self._clock()) <= self._staleness_s)
        )

    def missing(self) -> str | None:
        """What keeps owned partitions from being usable; None if all are."""
        now = self._clock()
        parts = self._partitions
        if self._uneven is not None:
            return self._uneven
        if lost := sorted(n for n, p in parts.items() if p.lost is not None):
            return (
                f"the suppression topic lost what was read of partitions {_list(lost)} ({parts[lost[0]].lost}): "
                f"run {REPUBLISH}, which puts everything into it again"
            )
        if loading := sorted(n for n, p in parts.items() if not p.caught_up):
            return f"suppressions of partitions {_list(loading)} are being read"
        if stale := sorted(n for n, p in parts.items() if p.age(now) > self._staleness_s):
            goes_on = f"; {', '.join(sorted(self._goes_on))} goes on" if self._goes_on else ""
            return (
                f"suppressions of partitions {_list(stale)} had no heartbeat for {self._staleness_s:g} s: "
                f"see that a scheduler and a relay are running{goes_on}"
            )
        return None

    def hit(self, partition: int, key: RecipientKey, tenant: str, lane: Lane) -> int | None:
        """The sequence of the recipient's set, if it has a suppression in force for this tenant and lane."""
        found = self._partitions.get(partition)
        return None if found is None else found.entries.hit(key, tenant, lane, self._clock())

    def overtaken(self) -> dict[RecipientKey, int]:
        """Recipients whose last record in the topic is an older one, with the sequence that counts: they have to be announced
        again, or compaction keeps the wrong record."""
        return {
            key: sequence
            for partition in self._partitions.values()
            if partition.caught_up
            for key, sequence in partition.entries.overtaken.items()
        }

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
    for applied in APPLIED:
        metrics.SENDER_SUPPRESSION_RECORDS.labels(applied=applied)
