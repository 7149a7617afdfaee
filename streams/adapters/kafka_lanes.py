"""Records of many callers on their way through one producer: what waits for a partition goes as one batch.

A batch costs a tenth of as many single sends. One batch of a partition is on its way at a time, so a partition without a
leader holds up nobody else's records.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.adapters.kafka import tell
from streams.domain.errors import Unavailable
from streams.domain.partitioner import positive_hashes
from streams.domain.records import NewRecord, TopicPartition

# So long a record waits for others at most, if nothing of its partition is on its way.
LINGER_S: Final = 0.002


class Call:
    """What one caller waits for: as many acknowledgements as it gave records."""

    __slots__ = ("future", "left", "until")

    def __init__(self, future: asyncio.Future[None], left: int, until: float) -> None:
        self.future = future
        self.left = left
        self.until = until

    def acknowledged(self) -> None:
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)


class _Lane:
    """One partition: what waits for it, and whether a batch is on its way."""

    __slots__ = ("busy", "partition", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[tuple[NewRecord, Call]] = deque()
        self.busy = False


class Lanes:
    """Of one producer, until the first failure: then every caller gets Unavailable, and on_failure is called once."""

    def __init__(
        self, producer: AIOKafkaProducer, *, timeout_s: float, on_failure: Callable[[], None]
    ) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._failure: str | None = None
        self._new: list[tuple[NewRecord, Call]] = []
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._ready: dict[_Lane, None] = {}
        # In the order in which they run out of time.
        self._calls: dict[Call, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._flush: asyncio.Task[None] | None = None
        self._turn = count()

    def put(self, records: Sequence[NewRecord]) -> asyncio.Future[None]:
        """Done when all of them are acknowledged; Unavailable when one may not be. The producer has to know their topics."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._failure is not None:
            raise Unavailable(self._failure)
        call = Call(future, len(records), self._loop.time() + self._timeout_s)
        self._calls[call] = None
        self._new += [(record, call) for record in records]
        if self._timer is None:
            self._arm()
        if self._watch is None:
            self._watch = self._loop.call_at(call.until, self._look)
        return future

    async def drained(self, timeout_s: float) -> None:
        """Waits until nobody waits any more."""
        if self._calls:
            await asyncio.wait([call.future for call in self._calls], timeout=timeout_s)
        self.close()

    def close(self) -> None:
        """Ends what is under way; who still waits gets Unavailable."""
        self._end("Kafka: the producer was closed")

    # From waiting to handed over ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._timer = self._loop.call_later(LINGER_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._flush is None:
            self._place()
            self._flush = self._loop.create_task(self._hand_over(), name="kafka-hand-over")
            self._flush.add_done_callback(self._on_flushed)

    def _place(self) -> None:
        """Puts what is new into its lanes."""
        new, self._new = self._new, []
        partitions = {topic: self._partitions(topic) for topic in {r.topic for r, _ in new}}
        for (record, call), hashed in zip(
            new, positive_hashes([record.key or b"" for record, _ in new]), strict=True
        ):
            number = record.partition
            if number is None:
                turn = hashed if record.key is not None else next(self._turn)
                number = turn % partitions[record.topic]
            partition = TopicPartition(record.topic, number)
            lane = self._lanes.get(partition)
            if lane is None:
                lane = self._lanes[partition] = _Lane(partition)
            lane.waiting.append((record, call))
            if not lane.busy:
                self._ready[lane] = None

    def _partitions(self, topic: str) -> int:
        return len(self._producer.client.cluster.partitions_for_topic(topic) or ()) or 1

    async def _hand_over(self) -> None:
        while self._ready:
            lane = next(iter(self._ready))
            del self._ready[lane]
            builder, calls = self._batch(lane)
            lane.busy = True
            topic, number = lane.partition
            acknowledgement = await self._producer.send_batch(builder, topic, partition=number)
            acknowledgement.add_done_callback(partial(self._on_acknowledged, lane, calls))

    def _batch(self, lane: _Lane) -> tuple[Any, list[Call]]:
        """As much of what waits as fits into one batch; a record larger than that goes alone."""
        builder = self._producer.create_batch()
        append, waiting, calls = builder.append, lane.waiting, []
        now_ms = int(time.time() * 1000)
        while waiting:
            record, call = waiting[0]
            headers = list(record.headers)
            if not append(timestamp=now_ms, key=record.key, value=record.value, headers=headers):
                break
            waiting.popleft()
            calls.append(call)
        return builder, calls

    def _on_flushed(self, task: asyncio.Task[None]) -> None:
        self._flush = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)
        elif (self._new or self._ready) and self._timer is None and self._failure is None:
            self._arm()

    # From handed over to acknowledged -----------------------------------------------------------------------------

    def _on_acknowledged(
        self, lane: _Lane, calls: Sequence[Call], acknowledgement: asyncio.Future[Any]
    ) -> None:
        lane.busy = False
        if self._failure is not None:
            if not acknowledgement.cancelled():
                acknowledgement.exception()  # everybody was told
            return
        error = None if acknowledgement.cancelled() else acknowledgement.exception()
        if error is not None or acknowledgement.cancelled():
            self._fail(error or ConnectionError("the batch was given up"))
            return
        for call in calls:
            call.acknowledged()
            if not call.left:
                self._calls.pop(call, None)
        if lane.waiting:
            self._ready[lane] = None
            if self._timer is None:
                self._arm()

    def _look(self) -> None:
        """Whether somebody has waited too long."""
        self._watch = None
        for call in list(self._calls):
            if call.future.done():  # its caller has gone
                del self._calls[call]
                continue
            if call.until <= self._loop.time():
                self._fail(TimeoutError(f"no acknowledgement within {self._timeout_s:g} s"))
            else:
                self._watch = self._loop.call_at(call.until, self._look)
            return

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._end(tell(error))
            self._on_failure()
        if not isinstance(error, (KafkaError, OSError, TimeoutError)):
            raise error

    def _end(self, why: str) -> None:
        if self._failure is not None:
            return
        self._failure = why
        for timer in (self._timer, self._watch):
            if timer is not None:
                timer.cancel()
        if self._flush is not None:
            self._flush.cancel()
        calls, self._calls = self._calls, {}
        self._lanes.clear()
        self._ready.clear()
        self._new.clear()
        for call in calls:
            if not call.future.done():
                call.future.set_exception(Unavailable(why))
