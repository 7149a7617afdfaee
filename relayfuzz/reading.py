"""The topics of a round, read whole and read on."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from aiokafka import AIOKafkaConsumer, TopicPartition

from relayfuzz.load import AGGREGATES
from relayfuzz.system import PARTITIONS
from streams.domain.topics import Topics

SUPPRESSIONS: Final = "suppressions"
_STABLE_S: Final = 1.5
_LONGEST_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Copy:
    """One record. at: its time stamp, when the relay read the row, in seconds since 1970; digest: of the value, None for none."""

    aggregate: str
    partition: int
    offset: int
    at: float
    key: str
    row_id: UUID
    seq: int
    digest: str | None
    value: bytes | None


class Reading:
    """What the topics hold, more with each read()."""

    def __init__(self, bootstrap_servers: str, topics: Topics) -> None:
        self.copies: list[Copy] = []
        self._bootstrap_servers = bootstrap_servers
        self._aggregates = {topics.of_aggregate(a): a for a in (*AGGREGATES, SUPPRESSIONS)}
        self._positions: dict[TopicPartition, int] = {
            TopicPartition(topic, n): 0 for topic in self._aggregates for n in range(PARTITIONS)
        }

    async def read(self) -> Sequence[Copy]:
        """Reads on to the end, once that does not move any more."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap_servers)
        await consumer.start()
        try:
            consumer.assign(list(self._positions))
            for place, position in self._positions.items():
                consumer.seek(place, position)
            await self._read_to(consumer, await self._stable_ends(consumer))
        finally:
            await consumer.stop()
        return self.copies

    async def _stable_ends(self, consumer: Any) -> dict[TopicPartition, int]:
        deadline = time.monotonic() + _LONGEST_S
        places = list(self._positions)
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        while time.monotonic() < deadline:
            await asyncio.sleep(_STABLE_S)
            before, ends = ends, await consumer.end_offsets(places)
            if ends == before:
                break
        return ends

    async def _read_to(self, consumer: Any, ends: dict[TopicPartition, int]) -> None:
        while any(self._positions[place] < end for place, end in ends.items()):
            found = await consumer.getmany(timeout_ms=500)
            for place, records in found.items():
                self.copies += [self._copy(record) for record in records]
                self._positions[place] = records[-1].offset + 1

    def _copy(self, record: Any) -> Copy:
        headers = dict(record.headers)
        return Copy(
            aggregate=self._aggregates[record.topic],
            partition=record.partition,
            offset=record.offset,
            at=record.timestamp / 1000,
            key=record.key.decode(),
            row_id=UUID(headers["id"].decode()),
            seq=int(headers["seq"]),
            digest=_digest(record.value),
            value=record.value if self._aggregates[record.topic] == SUPPRESSIONS else None,
        )


def _digest(value: bytes | None) -> str | None:
    return None if value is None else hashlib.md5(value, usedforsecurity=False).hexdigest()
