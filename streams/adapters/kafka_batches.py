"""The relay's way into Kafka: whole batches, the partition computed here, acks=all, idempotent.

aiokafka's create_batch and send_batch cost a tenth of send(). It sends one batch of a partition at a time, so order
within a partition holds as long as the batches are handed over one after the other.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)

from streams.adapters.kafka import kafka_errors, tell
from streams.adapters.kafka_partitions import Batch, Partition, Topic
from streams.adapters.kafka_producers import BATCH_BYTES, abandon, connected
from streams.domain.acknowledgement import AcknowledgedPrefix, Transaction
from streams.domain.errors import Unavailable
from streams.domain.feed_rows import FeedRow, Header, RecordRefused, headers
from streams.domain.partitioner import positive_hashes
from streams.runtime import metrics

# One batch of a partition is on its way, the next one waits in aiokafka; more would only wait there as well.
_DEPTH: Final = 2
_TOPIC_TIMEOUT_S: Final = 5.0
_NONE: Final[Mapping[str, Header]] = MappingProxyType({})
_SIZE_REFUSALS: Final = (MessageSizeTooLargeError, RecordListTooLargeError)
_REFUSALS: Final = (*_SIZE_REFUSALS, InvalidTimestampError, UnsupportedForMessageFormatError)


class KafkaBatches:
    """Implements the relay's RecordSink."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic_prefix: str,
        kinds: Mapping[str, str],
        content_types: Mapping[str, Header] = _NONE,
        linger_s: float,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        """By topic name: kinds the metric label, content_types a header that ends each of its records."""
        self._bootstrap_servers = bootstrap_servers
        self._prefix_name = topic_prefix
        self._kinds = kinds
        self._content_types = content_types
        self._linger_s = linger_s
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self.largest_record = max_bytes
        # Topics whose max.message.bytes is below our batches; kept when the producer is replaced.
        self._limits: dict[str, int] = {}
        self._producer: Any = None
        self._forget()

    def _forget(self) -> None:
        self._topics: dict[bytes | None, Topic] = {}
        self._open: dict[Partition, Batch] = {}
        self._rows = 0
        self._bytes = 0
        self._failed = False
        self._timer: asyncio.TimerHandle | None = None
        self._changed: asyncio.Future[None] | None = None

    async def open(
        self,
        prefix: AcknowledgedPrefix,
        *,
        on_progress: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._forget()
        self._loop = asyncio.get_running_loop()
        self._prefix = prefix
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._producer = await connected(self._bootstrap_servers)

    async def know_topics(self, aggregates: Sequence[bytes]) -> None:
        for aggregate in aggregates:
            if aggregate not in self._topics:
                self._topics[aggregate] = await self._described(aggregate.decode())

    async def _described(self, aggregate: str) -> Topic:
        name = f"{self._prefix_name}{aggregate}"
        producer = self._live()
        async with kafka_errors(), asyncio.timeout(_TOPIC_TIMEOUT_S):
            # Asked for by name, a missing topic is waited for and logged by aiokafka ten times a second.
            known = await producer.client.fetch_all_metadata()
            partitions = await producer.partitions_for(name) if name in known.topics() else ()
        if not partitions:
            raise Unavailable(
                f'topic {name} does not exist, and the feed has a row for it: "mailstreams migrate" makes the topics of '
                "mailstreams; the relay waits for it"
            )
        kind = self._kinds.get(name, "other")
        return Topic(
            name, kind, len(partitions), self._limits.get(name, 0), self._content_types.get(name)
        )

    def append(self, rows: Sequence[FeedRow]) -> None:
        """Puts rows of known topics into the open batches; sends those that are full, and the others after the linger."""
        now_ms = int(time.time() * 1000)
        topics = self._topics
        for row, hashed in zip(rows, positive_hashes([row[3] or b"" for row in rows]), strict=True):
            transaction, row_id, aggregate, key, kind, payload, trace, seq = row
            topic = topics[aggregate]
            partition = topic.partitions[hashed % len(topic.partitions)]
            record_headers = headers(row_id, kind, seq, trace)
            if topic.content_type is not None:
                record_headers.append(topic.content_type)
            batch = partition.open or self._opened(partition, transaction)
            if topic.limit and batch.ids and batch.fuller_than(topic.limit, payload):
                batch = self._next(partition, batch, transaction)
            if (
                batch.append(timestamp=now_ms, key=key, value=payload, headers=record_headers)
                is None
            ):
                batch = self._next(partition, batch, transaction)
                batch.append(timestamp=now_ms, key=key, value=payload, headers=record_headers)
            batch.ids.append(row_id)
            if topic.keeps_keys and key:
                batch.keys.append(key)
        self._rows += len(rows)
        for batch in self._open.values():
            self._bytes += batch.grown()
        self._linger()

    @property
    def rows_in_flight(self) -> int:
        return self._rows

    @property
    def bytes_in_flight(self) -> int:
        return self._bytes

    async def room(self, timeout_s: float) -> bool:
        return await self._wait_for(self._has_room, timeout_s)

    async def drained(self, timeout_s: float) -> bool:
        self.flush()
        return await self._wait_for(lambda: self._rows == 0, timeout_s)

    def flush(self) -> None:
        for partition, batch in list(self._open.items()):
            self._shut(partition, batch)

    async def close(self) -> list[bytes]:
        if self._timer is not None:
            self._timer.cancel()
        producer, self._producer = self._producer, None
        topics = list(self._topics.values())
        late = [
            key
            for topic in topics
            for partition in topic.partitions
            for batch in partition.on_the_way
            for key in batch.keys
        ]
        if self._rows:
            metrics.RELAY_PRODUCERS.inc()
        self._forget()
        for topic in topics:
            for partition in topic.partitions:
                if partition.sending is not None:
                    partition.sending.cancel()
        if producer is not None:
            await abandon(producer)
        return late

    # From open to closed ------------------------------------------------------------------------------------------

    def _opened(self, partition: Partition, first: Transaction) -> Batch:
        mark = self._prefix.opened(first)
        batch = Batch(self._live().create_batch(), mark, self._loop.time())
        partition.open = self._open[partition] = batch
        return batch

    def _next(self, partition: Partition, batch: Batch, first: Transaction) -> Batch:
        self._shut(partition, batch)
        return self._opened(partition, first)

    def _shut(self, partition: Partition, batch: Batch) -> None:
        del self._open[partition]
        partition.open = None
        self._bytes += batch.grown()
        partition.closed.append(batch)
        self._hand_over(partition)

    def _linger(self) -> None:
        """Shuts what has lingered; a partition with a batch on its way fills the next one meanwhile."""
        now = self._loop.time()
        next_due = None
        for partition, batch in list(self._open.items()):
            if partition.handed_over or partition.closed:
                continue
            due = batch.opened_at + self._linger_s
            if due <= now:
                self._shut(partition, batch)
            elif next_due is None or due < next_due:
                next_due = due
        if next_due is not None and self._timer is None:
            self._timer = self._loop.call_at(next_due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._linger()

    # From closed to acknowledged ----------------------------------------------------------------------------------

    def _hand_over(self, partition: Partition) -> None:
        if partition.sending is None and partition.closed and partition.handed_over < _DEPTH:
            producer = self._producer
            partition.sending = self._loop.create_task(self._send(producer, partition))
            partition.sending.add_done_callback(lambda task: self._on_sent(producer, task))

    async def _send(self, producer: Any, partition: Partition) -> None:
        try:
            while partition.closed and partition.handed_over < _DEPTH:
                batch = partition.closed[0]
                try:
                    acknowledgement = await producer.send_batch(
                        batch.builder, partition.topic.name, partition=partition.number
                    )
                except KafkaTimeoutError:
                    # The batch before it waits for a frozen broker; this one was not taken, so it is offered again.
                    continue
                partition.closed.popleft()
                partition.on_the_way.append(batch)
                acknowledgement.add_done_callback(
                    lambda future, batch=batch: self._on_done(producer, partition, batch, future)
                )
        finally:
            partition.sending = None

    def _on_sent(self, producer: Any, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, KafkaError):
            self._fail(producer, Unavailable(tell(error)))
        elif isinstance(error, Exception):
            self._fail(producer, error)

    def _on_done(
        self, producer: Any, partition: Partition, batch: Batch, future: asyncio.Future[Any]
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if producer is not self._producer or self._failed or future.cancelled():
            return
        if error is not None:
            self._fail(producer, self._judge(partition.topic.name, batch, error))
            return
        partition.on_the_way.remove(batch)
        self._rows -= len(batch.ids)
        self._bytes -= batch.size
        self._prefix.acknowledged(batch.mark)
        partition.topic.records.inc(len(batch.ids))
        metrics.RELAY_BATCHES.inc()
        metrics.RELAY_LATENCY.observe(max(0.0, time.time() - batch.mark.first.committed_at))
        if partition.closed:
            self._hand_over(partition)
        elif partition.open is not None and not partition.handed_over:
            self._linger()
        self._notify()
        self._on_progress()

    def _judge(self, topic: str, batch: Batch, error: BaseException) -> Exception:
        """What a batch that failed means: its one record is refused, smaller batches are wanted, or Kafka is in trouble."""
        if not isinstance(error, _REFUSALS):
            return Unavailable(tell(error, f"Kafka did not take a batch for {topic}"))
        if len(batch.ids) == 1:
            if not isinstance(error, _SIZE_REFUSALS):
                self._limits.pop(topic, None)
            return RecordRefused(batch.ids[0], f"{topic}: {error!r}")
        self._limits[topic] = max(1, min(batch.size, self._limits.get(topic, BATCH_BYTES)) // 2)
        return Unavailable(
            f"Kafka refuses a batch of {batch.size} bytes for {topic} ({error!r}): smaller ones are tried"
        )

    def _fail(self, producer: Any, error: Exception) -> None:
        if producer is self._producer and not self._failed:
            self._failed = True
            self._notify()
            self._on_failure(error)

    # Waiting ------------------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return self._rows < self._max_rows and self._bytes < self._max_bytes

    async def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = self._loop.time() + timeout_s
        while not condition():
            left = deadline - self._loop.time()
            if self._failed or left <= 0:
                return False
            if self._changed is None or self._changed.done():
                self._changed = self._loop.create_future()
            await asyncio.wait([self._changed], timeout=left)
        return True

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _live(self) -> Any:
        if self._producer is None:
            raise Unavailable("Kafka: not connected")
        return self._producer
