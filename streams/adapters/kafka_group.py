"""A member of a Kafka consumer group that reads in batches and commits by hand, after the outcome."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from streams.adapters.kafka import LagGauge, client_options, kafka_errors, record_of, undisturbed
from streams.adapters.kafka_connection import ConsumerEnded, check_alive, close
from streams.domain.errors import MailstreamsError, Misconfigured, Unavailable
from streams.domain.records import Record, TopicPartition
from streams.runtime import metrics

log = logging.getLogger(__name__)

POLL_S: Final = 0.5
# A poll waits for the end of a rebalance, a commit for the coordinator: both without a bound of their own.
PATIENCE_S: Final = 30.0
TOPIC_S: Final = 5.0
# A fetch without records ends after half a second.
FRESH_S: Final = 10.0


class GroupConsumer:
    """Starts where the group committed, else at the start of the log. A position outside of the log goes on from the log's start,
    and what is missing is counted. Records of control and transactions are not expected in its topics."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic: str,
        group: str,
        stage: str,
        max_records: int = 500,
        session_timeout_s: float = 10.0,
    ) -> None:
        self._options = client_options(bootstrap_servers, f"mailstreams-{stage}")
        self._topic = topic
        self._group = group
        self._stage = stage
        self._max_records = max_records
        self._session_timeout_ms = int(session_timeout_s * 1000)
        self._consumer: AIOKafkaConsumer | None = None
        self._ended = False
        self._positions = _Positions(stage)
        # Records can be read before the listener has looked at where their partitions begin, and committed what it found.
        self._assigning = asyncio.Lock()
        self._lag = LagGauge(stage)

    async def start(self) -> None:
        """Joins the group; Unavailable without a broker, Misconfigured without the topic."""
        consumer = AIOKafkaConsumer(
            **self._options,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=1000,
            session_timeout_ms=self._session_timeout_ms,
        )
        try:
            async with kafka_errors():
                await undisturbed(consumer.start())
                await self._wait_for_topic(consumer)
        except BaseException:
            await close(consumer, PATIENCE_S)
            raise
        consumer.subscribe(
            [self._topic], listener=_Listener(consumer, self._positions, self._assigning)
        )
        self._consumer = consumer
        self._ended = False

    async def _wait_for_topic(self, consumer: AIOKafkaConsumer) -> None:
        """A broker that has just started, or a topic that was just made: it is not known at once."""
        deadline = time.monotonic() + TOPIC_S
        while self._topic not in await consumer.topics():
            if time.monotonic() > deadline:
                raise Misconfigured(
                    f'topic {self._topic} does not exist: run "mailstreams migrate" first'
                )
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Leaves the group."""
        self._ended = False
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        if not await close(consumer, PATIENCE_S):
            log.warning("consumer did not leave its group", extra={"action": "consumer.not_left"})

    async def poll(self) -> Sequence[Record]:
        """The next records, in order within each partition; none after half a second without any.

        Unavailable too where the consumer has ended: with the next call the group is joined anew.
        """
        async with self._living() as consumer, kafka_errors(), asyncio.timeout(PATIENCE_S):
            found = await consumer.getmany(
                timeout_ms=int(POLL_S * 1000), max_records=self._max_records
            )
        # Without a time-out, since records that are read must not be dropped; the listener has one.
        async with self._assigning:
            pass
        self._lag.read(consumer, found)
        records = [record_of(r) for part in found.values() for r in part]
        self._positions.read(records)
        return records

    async def commit(self, records: Sequence[Record]) -> None:
        """Commits the positions after these records, where the partition is still ours; its new owner reads the rest again."""
        async with self._living() as consumer:
            ours = consumer.assignment()
            ends = {
                KafkaPartition(*partition): end
                for partition, end in _ends(records).items()
                if KafkaPartition(*partition) in ours
            }
            if not ends:
                return
            try:
                async with kafka_errors(), asyncio.timeout(PATIENCE_S), self._assigning:
                    await consumer.commit(ends)
            except Unavailable as error:
                if not isinstance(error.__cause__, (CommitFailedError, IllegalStateError)):
                    raise
                log.info(
                    "positions are committed by their new owner", extra={"action": "commit.lost"}
                )

    async def is_caught_up(self) -> bool:
        """Whether all that the broker had a moment ago was polled. One without partitions is."""
        consumer = self._started()
        newest = (time.time() - FRESH_S) * 1000
        for partition in consumer.assignment():
            fetched, end = consumer.last_poll_timestamp(partition), consumer.highwater(partition)
            if fetched is None or end is None or fetched < newest:
                return False
            async with kafka_errors(), asyncio.timeout(PATIENCE_S):
                if await consumer.position(partition) < end:
                    return False
        return True

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[AIOKafkaConsumer]:
        """The consumer, made anew if it has ended; one that raises what aiokafka does not foresee would raise it for ever."""
        if self._ended:
            await self.start()
        consumer = self._started()
        try:
            check_alive(consumer)
            yield consumer
        except ConsumerEnded:
            await self._give_up()
            raise
        except MailstreamsError:
            raise
        except Exception as error:
            await self._give_up()
            raise ConsumerEnded(
                f"Kafka: the consumer has failed and is made anew: {error!r}"
            ) from error

    async def _give_up(self) -> None:
        await self.stop()
        self._ended = True

    def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise Unavailable("Kafka: the consumer is not started")
        return self._consumer


class _Positions:
    """The offset that comes next in each partition, to notice what is missing."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._next: dict[TopicPartition, int] = {}

    def assigned(self, partition: TopicPartition, committed: int | None) -> None:
        self._next.pop(partition, None)
        if committed is not None:
            self._next[partition] = committed

    def read(self, records: Iterable[Record]) -> None:
        for record in records:
            partition = record.topic_partition
            expected = self._next.get(partition, record.offset)
            if record.offset > expected:
                metrics.CONSUMER_GAP.labels(stage=self._stage).inc(record.offset - expected)
                self._report("records are gone from the topic", "consumer.gap", record, expected)
            elif record.offset < expected:
                metrics.CONSUMER_RESETS.labels(stage=self._stage).inc()
                self._report("topic begins anew", "consumer.position_reset", record, expected)
            self._next[partition] = record.offset + 1

    def _report(self, sentence: str, action: str, record: Record, expected: int) -> None:
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        log.error(sentence, extra={"action": action, "expected": expected, **where})


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    def __init__(
        self, consumer: AIOKafkaConsumer, positions: _Positions, assigning: asyncio.Lock
    ) -> None:
        self._consumer = consumer
        self._positions = positions
        self._assigning = assigning

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        """What was read of them and is not committed is read again by their new owner."""

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        async with self._assigning, asyncio.timeout(PATIENCE_S):
            for partition in assigned:
                committed = await self._consumer.committed(partition)
                if committed is None:
                    committed = await self._begin(partition)
                self._positions.assigned(TopicPartition(*partition), committed)
        log.info(
            "partitions are assigned",
            extra={"action": "consumer.assigned", "partitions": sorted(p[1] for p in assigned)},
        )

    async def _begin(self, partition: KafkaPartition) -> int | None:
        """Commits where a new group begins, so that what goes before the first commit of its own is noticed as well."""
        try:
            begin = int((await self._consumer.beginning_offsets([partition]))[partition])
            await self._consumer.commit({partition: begin})
        except KafkaError as error:
            log.info(
                "position of the beginning is not committed",
                extra={"action": "consumer.begin_not_committed", "error": repr(error)},
            )
            return None
        return begin


def _ends(records: Iterable[Record]) -> dict[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for record in records:
        partition = record.topic_partition
        ends[partition] = max(ends.get(partition, 0), record.offset + 1)
    return ends
