"""The pointers of both lanes, read as a member of the senders' consumer group."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from streams.adapters.kafka import LagGauge, client_options, kafka_errors, record_of
from streams.domain.errors import Unavailable
from streams.domain.records import Record, TopicPartition
from streams.domain.topics import Lane, Topics

log = logging.getLogger(__name__)

# The group moved on: whoever owns the partitions now reads the records again, and the claim keeps their work from being
# repeated.
_MOVED_ON: Final = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
_STOP_S: Final = 5.0

OnChange = Callable[[frozenset[int]], Awaitable[None]]


class KafkaPointers:
    """A member of the group <prefix>sender. The range assignor gives both topics' partitions of one number to one member.

    Unavailable from any method means: stop() and start() again.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Topics,
        *,
        client_id: str,
        session_timeout_s: float = 10.0,
        max_poll_interval_s: float = 60.0,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._session_timeout_ms = int(session_timeout_s * 1000)
        self._max_poll_interval_ms = int(max_poll_interval_s * 1000)
        self._group = f"{topics.prefix}sender"
        self._lanes = {topics.outbox(lane): lane for lane in Lane}
        self._consumer: AIOKafkaConsumer | None = None
        self._lag = LagGauge("sender")

    async def start(self, *, on_revoked: OnChange, on_assigned: OnChange) -> None:
        """Joins the group. on_revoked is called before partitions are given up, on_assigned after they were given;
        both get all partition numbers, and neither may raise."""
        if self._consumer is not None:
            return
        consumer = AIOKafkaConsumer(
            **client_options(self._bootstrap_servers, self._client_id),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(RangePartitionAssignor,),
            heartbeat_interval_ms=500,
            session_timeout_ms=self._session_timeout_ms,
            max_poll_interval_ms=self._max_poll_interval_ms,
            request_timeout_ms=15_000,
            isolation_level="read_committed",
        )
        try:
            async with kafka_errors():
                await consumer.start()
                consumer.subscribe(list(self._lanes), listener=_Listener(on_revoked, on_assigned))
        except BaseException:
            await _close(consumer)
            raise
        self._consumer = consumer

    async def fetch(self, lanes: Collection[Lane], *, most: int, timeout_s: float) -> list[Record]:
        """Records of these lanes, those of each partition in order; none after the time-out. Of other lanes fetching pauses."""
        consumer = self._started()
        self._pause_others(consumer, lanes)
        async with kafka_errors():
            try:
                async with asyncio.timeout(timeout_s + 1):
                    found = await consumer.getmany(
                        timeout_ms=int(timeout_s * 1000), max_records=most
                    )
            except TimeoutError:  # a rebalance is under way: nothing is given out until it ends
                return []
        self._lag.read(consumer, found)
        return [record_of(record) for records in found.values() for record in records]

    def _pause_others(self, consumer: AIOKafkaConsumer, lanes: Collection[Lane]) -> None:
        with suppress(IllegalStateError):  # a partition left between the two calls
            assigned, paused = consumer.assignment(), consumer.paused()
            closed = {tp for tp in assigned if self._lanes[tp.topic] not in lanes}
            consumer.pause(*(closed - paused))
            consumer.resume(*((assigned & paused) - closed))

    async def commit(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Commits those of partitions that are still ours; False if the group has moved on meanwhile."""
        consumer = self._started()
        mine = consumer.assignment()
        wanted = {KafkaPartition(*tp): offset for tp, offset in positions.items()}
        wanted = {tp: offset for tp, offset in wanted.items() if tp in mine}
        if not wanted:
            return False
        async with kafka_errors():
            try:
                async with asyncio.timeout(_STOP_S):
                    await consumer.commit(wanted)
            except _MOVED_ON as error:
                log.info(
                    "offsets were not committed, the group moved on",
                    extra={"action": "sender.commit_refused", "error": type(error).__name__},
                )
                return False
        return True

    async def stop(self) -> None:
        """Leaves the group. Idempotent."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _close(consumer)

    def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise Unavailable("Kafka: the consumer of pointers is not connected")
        return self._consumer


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, on_revoked: OnChange, on_assigned: OnChange) -> None:
        self._on_revoked = on_revoked
        self._on_assigned = on_assigned

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        await self._on_revoked(_numbers(revoked))

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        await self._on_assigned(_numbers(assigned))


def _numbers(partitions: Iterable[KafkaPartition]) -> frozenset[int]:
    return frozenset(tp.partition for tp in partitions)


async def _close(consumer: AIOKafkaConsumer) -> None:
    """Closes without waiting for a broker that does not answer."""
    try:
        await asyncio.wait_for(consumer.stop(), _STOP_S)
    except (TimeoutError, OSError):
        log.warning("Kafka consumer did not close", extra={"action": "kafka.consumer_not_closed"})
