"""Pointers from Kafka into the tenants' queues: read, drop what no longer waits, commit what is finished."""

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from streams.domain.attempts import Presence
from streams.domain.errors import BadMessage
from streams.domain.offsets import ContiguousOffsets
from streams.domain.pointers import Pointer, read_pointer
from streams.domain.records import Record, TopicPartition
from streams.domain.tenant_queues import TenantQueues
from streams.domain.topics import Lane
from streams.domain.unreadable_limit import UnreadableLimit
from streams.ports.kafka_writing import SetAside
from streams.ports.sender import Outbox, PointerFeed
from streams.runtime import metrics
from streams.sending.signals import Signal

log = logging.getLogger(__name__)

# So many pointers of a lane may wait in memory.
MOST_WAITING: Final = 5000
BATCH: Final = 500
# A row whose transaction stays invisible for longer is taken for absent; the scheduler's sweep finds it.
INVISIBLE_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.05
IDLE_S: Final = 0.5
COMMIT_EVERY_S: Final = 0.25
STAGE: Final = "sender"


@dataclass(slots=True)
class _Arrival:
    """A pointer that is not in the queues yet. A row that cannot be seen yet is looked for again later."""

    pointer: Pointer
    since: float
    look_at: float


class PointerIntake:
    """Owns the offsets: a record is finished once what it asks for is durable or needless."""

    def __init__(
        self, *, feed: PointerFeed, outbox: Outbox, unreadable: SetAside, work: Signal
    ) -> None:
        self.queues = TenantQueues()
        self.halted: str | None = None
        self._left = False
        self._feed = feed
        self._outbox = outbox
        self._unreadable = unreadable
        self._work = work
        self._news = Signal()
        self._limit = UnreadableLimit()
        self._offsets: dict[TopicPartition, ContiguousOffsets] = {}
        # Of partitions whose topic was made anew: whose pointer is at each open offset. What was read of the old topic is still
        # under way, under offsets that are those of other records now.
        self._anew: dict[TopicPartition, dict[int, UUID]] = {}
        self._arrived: deque[_Arrival] = deque()
        self._hidden: deque[_Arrival] = deque()
        self._aside: deque[tuple[Record, str]] = deque()

    # Reading ----------------------------------------------------------------------------------------------------------

    async def fetch(self) -> float:
        """Takes records over as long as there is room; waits for nothing but Kafka."""
        if self.halted is not None:
            await self._finish_halt()
            return IDLE_S
        lanes = self.open_lanes()
        now = time.monotonic()
        for record in await self._feed.fetch(lanes, most=BATCH, timeout_s=IDLE_S):
            self._take(record, now)
        self._news.set()
        if not self._limit.allows(0, now):
            self._halt()
        return 0.0

    def open_lanes(self) -> list[Lane]:
        """Lanes that there is room for, so that their pointers are read."""
        if self.halted is not None:
            return []
        return [lane for lane in Lane if self.waiting(lane) < MOST_WAITING]

    def waiting(self, lane: Lane) -> int:
        """How many pointers of the lane wait in memory."""
        arrived = sum(
            a.pointer.lane is lane for waiting in (self._arrived, self._hidden) for a in waiting
        )
        return arrived + self.queues.size(lane)

    def _take(self, record: Record, now: float) -> None:
        self._track(record)
        try:
            pointer = read_pointer(record)
            self._arrived.append(_Arrival(pointer, now, now))
            if pointer.topic_partition in self._anew:
                self._anew[pointer.topic_partition][pointer.offset] = pointer.id
        except BadMessage as error:
            self._limit.add(now)
            self._aside.append((record, str(error)))

    def _track(self, record: Record) -> None:
        offsets = self._offsets.setdefault(record.topic_partition, ContiguousOffsets())
        try:
            offsets.track(record.offset)
        except (
            ValueError
        ):  # the topic was made anew, or lost its end: it is read from its start again
            where = {"topic": record.topic, "partition": record.partition}
            log.warning(
                "position of a topic went back",
                extra={"action": "sender.position_went_back", **where},
            )
            metrics.CONSUMER_RESETS.labels(stage=STAGE).inc()
            self._offsets[record.topic_partition] = offsets = ContiguousOffsets()
            self._anew[record.topic_partition] = {}
            offsets.track(record.offset)

    def _halt(self) -> None:
        self.halted = (
            "too many pointers were unreadable in a short time, so nothing more is read: see the reasons in "
            "<topic>.unreadable, mend what writes them, and start the sender again"
        )
        metrics.CONSUMER_HALTED.labels(stage=STAGE).set(1)
        log.error("too many pointers are unreadable", extra={"action": "sender.halted"})

    async def _finish_halt(self) -> None:
        """What was taken over is sent, put aside and committed first: whoever starts next begins behind it."""
        if self._left:
            return
        if all(offsets.settled for offsets in self._offsets.values()):
            self._left = True
            await self._feed.stop()
        else:  # keeps the membership; all lanes pause, so that nothing comes
            await self._feed.fetch((), most=1, timeout_s=IDLE_S)

    async def set_aside(self) -> float:
        """Puts unreadable records aside, one after the other; each is finished then."""
        if not self._aside:
            return IDLE_S
        record, reason = self._aside[0]
        await self._unreadable.put(record, reason=reason)
        if self._aside and self._aside[0][0] is record:
            self._aside.popleft()
        if record.offset not in self._anew.get(record.topic_partition, {}):
            self._finish(record.topic_partition, record.offset)
        return 0.0

    # Dropping what no longer waits ------------------------------------------------------------------------------------

    async def sift(self) -> float:
        """One read a batch: what still waits is queued, what is settled or purged is finished."""
        batch = self._next_batch(time.monotonic())
        if not batch:
            await self._news.wait(LOOK_AGAIN_S if self._hidden else IDLE_S)
            return 0.0
        try:
            found = await self._outbox.read_pending([arrival.pointer for arrival in batch])
        except BaseException:
            self._arrived.extendleft(a for a in reversed(batch) if self._is_open(a.pointer))
            raise
        self._place(batch, found)
        return 0.0

    def _next_batch(self, now: float) -> list[_Arrival]:
        batch: list[_Arrival] = []
        while self._hidden and self._hidden[0].look_at <= now and len(batch) < BATCH:
            batch.append(self._hidden.popleft())
        while self._arrived and len(batch) < BATCH:
            batch.append(self._arrived.popleft())
        return batch

    def _place(self, batch: Sequence[_Arrival], found: Sequence[Presence]) -> None:
        waiting = []
        for arrival, presence in zip(batch, found, strict=True):
            match presence:
                case Presence.PENDING:
                    waiting.append(arrival.pointer)
                case Presence.INVISIBLE:
                    self._hide(arrival)
                case Presence.SETTLED | Presence.ABSENT:
                    metrics.SENDER_CLAIMS.labels(verdict=presence).inc()
                    self.finish(arrival.pointer)
        self.put_back(waiting)

    def hide(self, pointer: Pointer) -> None:
        """The pointer's row cannot be seen yet: it is looked for again soon, for about a minute."""
        now = time.monotonic()
        self._hide(_Arrival(pointer, now, now))

    def _hide(self, arrival: _Arrival) -> None:
        now = time.monotonic()
        if now - arrival.since > INVISIBLE_S:
            metrics.SENDER_CLAIMS.labels(verdict=Presence.INVISIBLE).inc()
            self.finish(arrival.pointer)
        elif self._is_open(arrival.pointer):
            arrival.look_at = now + LOOK_AGAIN_S
            self._hidden.append(arrival)

    def put_back(self, pointers: Sequence[Pointer]) -> None:
        """Queues them, unless their partitions are no longer ours, and wakes whoever waits for work if there is any."""
        open_ones = [p for p in pointers if self._is_open(p)]
        if open_ones:
            self.queues.put(open_ones)
            self._work.set()

    # Offsets ----------------------------------------------------------------------------------------------------------

    def _is_open(self, pointer: Pointer) -> bool:
        offsets = self._offsets.get(pointer.topic_partition)
        if offsets is None:
            return False
        return self._is_of_old_topic(pointer) or offsets.is_open(pointer.offset)

    def _is_of_old_topic(self, pointer: Pointer) -> bool:
        ids = self._anew.get(pointer.topic_partition)
        return ids is not None and ids.get(pointer.offset) != pointer.id

    def finish(self, pointer: Pointer) -> None:
        """What the pointer asked for is durable or needless."""
        if self._is_of_old_topic(pointer):
            return
        self._anew.get(pointer.topic_partition, {}).pop(pointer.offset, None)
        self._finish(pointer.topic_partition, pointer.offset)

    def _finish(self, topic_partition: TopicPartition, offset: int) -> None:
        offsets = self._offsets.get(topic_partition)
        if offsets is not None:
            offsets.finish(offset)

    async def commit(self) -> float:
        """Commits the contiguous prefix of every partition that has moved."""
        moved = {tp: offsets.committable() for tp, offsets in self._offsets.items()}
        positions = {tp: position for tp, position in moved.items() if position is not None}
        trackers = {tp: self._offsets[tp] for tp in positions}
        if positions and not self._left and await self._feed.commit(positions):
            for tp, position in positions.items():
                trackers[tp].committed(position)
        return COMMIT_EVERY_S

    def forget(self) -> None:
        """The partitions are given up: whoever owns them next reads again what is not committed."""
        self.queues.clear()
        self._arrived.clear()
        self._hidden.clear()
        self._aside.clear()
        self._offsets.clear()
        self._anew.clear()
