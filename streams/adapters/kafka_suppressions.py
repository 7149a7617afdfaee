"""The partitions of mail.suppressions that a sender follows, assigned by hand."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.adapters.kafka import client_options, kafka_errors
from streams.domain.errors import Unavailable
from streams.domain.suppressions import SuppressionRecord

log = logging.getLogger(__name__)

_ANSWER_S: Final = 15.0
_STOP_S: Final = 5.0
_SEQUENCE: Final = "seq"


class KafkaSuppressions:
    """No group and no commits: who follows says where to begin. Unavailable means: follow() again."""

    def __init__(self, bootstrap_servers: str, topic: str, *, client_id: str) -> None:
        self._options = client_options(bootstrap_servers, client_id)
        self._topic = topic
        self._consumer: AIOKafkaConsumer | None = None

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, int]:
        """Reads these partitions from these positions on (None: the beginning); returns their ends of this moment."""
        await self.stop()
        if not positions:
            return {}
        consumer = AIOKafkaConsumer(
            **self._options,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            # An end offset may stand behind records of an aborted transaction or its marker.
            isolation_level="read_committed",
            fetch_max_bytes=16 * 1024 * 1024,
            max_partition_fetch_bytes=4 * 1024 * 1024,
            request_timeout_ms=int(_ANSWER_S * 1000),
        )
        try:
            async with kafka_errors(), asyncio.timeout(_ANSWER_S):
                await consumer.start()
                ends = await self._begin(consumer, positions)
        except BaseException:
            await _close(consumer)
            raise
        self._consumer = consumer
        return ends

    async def _begin(
        self, consumer: AIOKafkaConsumer, positions: Mapping[int, int | None]
    ) -> dict[int, int]:
        partitions = {number: TopicPartition(self._topic, number) for number in positions}
        consumer.assign(list(partitions.values()))
        ends = await consumer.end_offsets(list(partitions.values()))
        for number, position in positions.items():
            if position is None:
                await consumer.seek_to_beginning(partitions[number])
            else:
                consumer.seek(partitions[number], position)
        return {tp.partition: offset for tp, offset in ends.items()}

    async def fetch(
        self, *, most: int, timeout_s: float
    ) -> tuple[list[SuppressionRecord], dict[int, int]]:
        """Records in the order of each partition, and the position of every partition after them.

        The position also passes offsets that carry no record any more: compacted ones and transaction markers.
        """
        if self._consumer is None:
            await asyncio.sleep(timeout_s)
            return [], {}
        try:
            async with kafka_errors(), asyncio.timeout(timeout_s + _ANSWER_S):
                found = await self._consumer.getmany(
                    timeout_ms=int(timeout_s * 1000), max_records=most
                )
                positions = {
                    tp.partition: await self._consumer.position(tp)
                    for tp in self._consumer.assignment()
                }
        except Unavailable:
            await self.stop()
            raise
        records = [
            SuppressionRecord(
                record.partition,
                record.offset,
                record.key,
                record.value,
                next((value for name, value in record.headers if name == _SEQUENCE), None),
            )
            for of_partition in found.values()
            for record in of_partition
        ]
        return records, positions

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _close(consumer)


async def _close(consumer: AIOKafkaConsumer) -> None:
    try:
        await asyncio.wait_for(consumer.stop(), _STOP_S)
    except (TimeoutError, OSError):
        log.warning("Kafka consumer did not close", extra={"action": "kafka.consumer_not_closed"})
