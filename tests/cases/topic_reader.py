"""Reads what was written to topics since a moment."""

from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

Mark = Mapping[TopicPartition, int]


class TopicReader:
    """All partitions of some topics. A mark is where each of them ended."""

    def __init__(self, bootstrap_servers: str, partitions: Mapping[str, int]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._partitions = [
            TopicPartition(t, n) for t, count in partitions.items() for n in range(count)
        ]
        self._consumer: Any = None

    async def start(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
        )
        await self._consumer.start()
        self._consumer.assign(self._partitions)
        # A fetch that waits for records would hold up every question about offsets.
        self._consumer.pause(*self._partitions)

    async def stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def mark(self) -> Mark:
        ends: Mark = await self._consumer.end_offsets(self._partitions)
        return ends

    async def between(self, start: Mark, end: Mark) -> dict[str, list[Any]]:
        """The records of each topic from one mark to the other."""
        found: dict[str, list[Any]] = {partition.topic: [] for partition in self._partitions}
        for partition in self._partitions:
            if start[partition] >= end[partition]:
                continue
            self._consumer.seek(partition, start[partition])
            self._consumer.resume(partition)
            while await self._consumer.position(partition) < end[partition]:
                records = await self._consumer.getmany(partition, timeout_ms=200)
                found[partition.topic] += [
                    record
                    for record in records.get(partition, [])
                    if record.offset < end[partition]
                ]
            self._consumer.pause(partition)
        return found

    async def since(self, start: Mark) -> dict[str, list[Any]]:
        return await self.between(start, await self.mark())
