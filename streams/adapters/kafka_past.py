"""A topic from its beginning to the end of one moment."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.adapters.kafka import client_options, kafka_errors, record_of
from streams.adapters.kafka_positions import committed_positions
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.rebuilding import Horizon
from streams.domain.records import Record

_ANSWER_S: Final = 30.0
_POLL_MS: Final = 500
# So long nothing comes, though the end is not reached.
_SILENCE_S: Final = 60.0


class KafkaPast:
    """capture() first. group: whose positions say what is folded."""

    def __init__(self, bootstrap_servers: str, *, topic: str, group: str, most: int = 1000) -> None:
        self._options = client_options(bootstrap_servers, "mailstreams-rebuild")
        self._topic = topic
        self._group = group
        self._most = most
        self._consumer: AIOKafkaConsumer | None = None
        self._captured_at = datetime.now(UTC)
        self._ends: dict[TopicPartition, int] = {}
        self._first: dict[TopicPartition, Record] = {}
        self._begins: dict[TopicPartition, int] = {}

    async def capture(self) -> int:
        """Takes the end; how many records there are up to it, at most. Misconfigured without the topic."""
        partitions = [
            TopicPartition(self._topic, number) for number in await self._partition_numbers()
        ]
        consumer = AIOKafkaConsumer(
            **self._options,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._consumer = consumer
        async with kafka_errors(), asyncio.timeout(_ANSWER_S):
            await consumer.start()
            consumer.assign(partitions)
            self._captured_at = datetime.now(UTC)
            self._begins = await consumer.beginning_offsets(partitions)
            self._ends = await consumer.end_offsets(partitions)
        return sum(self._ends[tp] - self._begins[tp] for tp in partitions)

    async def batches(self) -> AsyncIterator[Sequence[Record]]:
        """All of them from the beginning, in order within each partition; may be asked for again."""
        consumer = self._started()
        async with kafka_errors(), asyncio.timeout(_ANSWER_S):
            await consumer.seek_to_beginning(*self._ends)
        silent_since = asyncio.get_running_loop().time()
        while open_ := await self._open(consumer):
            async with kafka_errors(), asyncio.timeout(_ANSWER_S):
                found = await consumer.getmany(*open_, timeout_ms=_POLL_MS, max_records=self._most)
            records = [record_of(r) for part in found.values() for r in part if self._wanted(r)]
            now = asyncio.get_running_loop().time()
            if found:
                silent_since = now
            elif now - silent_since > _SILENCE_S:
                raise Unavailable(
                    f"Kafka: {self._topic} gives no records though its end is not reached"
                )
            for record in records:
                self._first.setdefault(TopicPartition(record.topic, record.partition), record)
            if records:
                yield records

    def horizon(self) -> Horizon:
        """What the topic still tells, known once the records are read."""
        return Horizon(oldest={tp.partition: self._oldest(tp) for tp in self._ends})

    async def _partition_numbers(self) -> list[int]:
        async with self._admin() as admin:
            if self._topic not in await admin.list_topics():
                raise Misconfigured(
                    f'topic {self._topic} does not exist: run "mailstreams migrate" first'
                )
            (described,) = await admin.describe_topics([self._topic])
        return sorted(partition["partition"] for partition in described["partitions"])

    async def unfolded(self) -> int:
        """How many of these records the group has not committed yet."""
        async with self._admin() as admin:
            committed = await committed_positions(admin, self._group, list(self._ends))
        behind = 0
        for tp, end in self._ends.items():
            at = committed.get(tp, -1)
            behind += max(end - max(at, self._begins[tp]), 0)
        return behind

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            async with kafka_errors(), asyncio.timeout(_ANSWER_S):
                await consumer.stop()

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**self._options)
        async with kafka_errors(), asyncio.timeout(_ANSWER_S):
            try:
                await admin.start()
                yield admin
            finally:
                await admin.close()

    async def _open(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        """Partitions whose end is not reached."""
        async with kafka_errors(), asyncio.timeout(_ANSWER_S):
            return [tp for tp, end in self._ends.items() if await consumer.position(tp) < end]

    def _wanted(self, record: Any) -> bool:
        """It stands before the end that was captured."""
        end: int = self._ends[TopicPartition(record.topic, record.partition)]
        return bool(record.offset < end)

    def _oldest(self, partition: TopicPartition) -> datetime | None:
        first = self._first.get(partition)
        if first is None:
            return self._captured_at if self._ends[partition] > 0 else None
        if first.offset == 0:
            return None
        return datetime.fromtimestamp(first.timestamp_ms / 1000, UTC)

    def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise Unavailable("Kafka: nothing is captured")
        return self._consumer
