"""Where the pointers of a message stand in their topic, found by reading it from the time of the message on."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.adapters.doctor_kafka import DoctorKafka
from streams.adapters.kafka import client_options, kafka_errors, undisturbed
from streams.adapters.kafka_positions import committed_positions
from streams.domain.errors import Misconfigured

_CLIENT: Final = "mailstreams-trace"
# The clocks of brokers and database may differ.
_EARLIER_MS: Final = 5000
_POLL_MS: Final = 200


class Sought(NamedTuple):
    """A message whose pointers are looked for, from when on, and the group that reads them."""

    place: TopicPartition
    outbox_id: UUID
    since: datetime
    group: str


class Position(NamedTuple):
    """A record with a pointer; read: the consumer group is past it."""

    offset: int
    written: float
    read: bool


class Found(NamedTuple):
    """The positions that were found, oldest first; whole: everything up to the end of the partition was looked at."""

    positions: Sequence[Position]
    whole: bool


class PointerPositions:
    """Joins no group and commits nothing; Unavailable if no broker answers."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._options = client_options(bootstrap_servers, _CLIENT) | {"request_timeout_ms": 5000}

    async def find(self, sought: Sought, *, seconds: float) -> Found:
        """Reads for so many seconds at most. Misconfigured if there is no such partition."""
        place = sought.place
        # All topics at once: a broker may make one that it is asked for.
        topics = (await DoctorKafka(self._bootstrap_servers).cluster([place.topic])).topics
        there = topics[place.topic].partitions if place.topic in topics else []
        if place.partition not in [one.number for one in there]:
            raise Misconfigured(
                f"topic {place.topic} has no partition {place.partition}: see MAILSTREAMS_PARTITIONS"
            )
        admin = AIOKafkaAdminClient(**self._options)
        consumer = AIOKafkaConsumer(
            **self._options, enable_auto_commit=False, isolation_level="read_committed"
        )
        async with kafka_errors():
            try:
                await undisturbed(admin.start())
                await undisturbed(consumer.start())
                committed = (await committed_positions(admin, sought.group, [place]))[place]
                return await _read(consumer, sought, committed=committed, seconds=seconds)
            finally:
                await consumer.stop()
                await asyncio.shield(admin.close())


async def _read(
    consumer: AIOKafkaConsumer, sought: Sought, *, committed: int, seconds: float
) -> Found:
    place = sought.place
    started = int(sought.since.timestamp() * 1000) - _EARLIER_MS
    first = (await consumer.offsets_for_times({place: started}))[place]
    end = (await consumer.end_offsets([place]))[place]
    consumer.assign([place])
    consumer.seek(place, end if first is None else first.offset)
    wanted = str(sought.outbox_id).encode()
    found: list[Position] = []
    deadline = time.monotonic() + seconds
    while (at := await consumer.position(place)) < end and time.monotonic() < deadline:
        for record in (await consumer.getmany(place, timeout_ms=_POLL_MS)).get(place, ()):
            if wanted in (record.value or b""):
                read = record.offset < committed
                found.append(Position(record.offset, record.timestamp / 1000, read))
    return Found(positions=found, whole=at >= end)
