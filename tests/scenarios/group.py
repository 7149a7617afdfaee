"""What the broker itself wrote down about a consumer group: its generations and its committed positions."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

OFFSETS_TOPIC: Final = "__consumer_offsets"
_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2


@dataclass(slots=True)
class GroupHistory:
    """In the order in which it happened."""

    generations: list[int] = field(default_factory=list)
    commits: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    @property
    def went_back(self) -> dict[tuple[str, int], list[int]]:
        """Partitions where a commit was behind the one before it, as one of a former owner is."""
        return {
            partition: offsets
            for partition, offsets in self.commits.items()
            if offsets != sorted(offsets)
        }


async def history(bootstrap_servers: str, group: str) -> GroupHistory:
    """Reads Kafka's own topic from its beginning; what was compacted meanwhile is missing."""
    found = GroupHistory()
    for record in await _records(bootstrap_servers):
        key = _Reader(record.key)
        kind = key.number(">h")
        if kind in _OFFSET_KEYS and key.text() == group:
            partition = (key.text(), key.number(">i"))
            if record.value is not None:
                found.commits.setdefault(partition, []).append(_committed(record.value))
        elif kind == _GROUP_KEY and key.text() == group and record.value is not None:
            value = _Reader(record.value)
            value.number(">h")
            value.text()
            found.generations.append(value.number(">i"))
    return found


async def _records(bootstrap_servers: str) -> list[Any]:
    partitions = await _partitions(bootstrap_servers)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        records: list[Any] = []
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                records += batch
        return records
    finally:
        await consumer.stop()


async def _partitions(bootstrap_servers: str) -> list[TopicPartition]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        [topic] = await admin.describe_topics([OFFSETS_TOPIC])
    finally:
        await admin.close()
    return [TopicPartition(OFFSETS_TOPIC, p["partition"]) for p in topic["partitions"]]


def _committed(value: bytes) -> int:
    """Every version of the value has a version number and then the offset."""
    return int(struct.unpack_from(">q", value, 2)[0])


class _Reader:
    """Numbers and texts one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        [value] = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        length = self.number(">h")
        found = self._data[self._at : self._at + length]
        self._at += length
        return found.decode()


async def records_in(bootstrap_servers: str, topics: Sequence[str]) -> int:
    """How many records were ever written to these topics."""
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap_servers)
    await consumer.start()
    try:
        return sum((await consumer.end_offsets(consumer.assignment())).values())
    finally:
        await consumer.stop()
