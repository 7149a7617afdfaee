"""What `mailstreams status` reads of Kafka: how far consumer groups are, and the newest heartbeats."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.adapters.doctor_kafka import DoctorKafka
from streams.adapters.kafka import client_options, kafka_errors, undisturbed
from streams.adapters.kafka_positions import committed_positions
from streams.domain.errors import Misconfigured
from streams.domain.overview import Lag

_CLIENT: Final = "mailstreams-status"
_READ_S: Final = 3.0
_POLL_MS: Final = 200


class OverviewKafka:
    """Joins no group and commits nothing; methods raise Unavailable if no broker answers."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._options = client_options(bootstrap_servers, _CLIENT) | {"request_timeout_ms": 5000}
        self._doctor = DoctorKafka(bootstrap_servers)

    async def heartbeat_ages(self, topic: str) -> Mapping[int, float | None]:
        """By partition, seconds since the newest heartbeat; None where none is near the end."""
        partitions = await self._partitions([topic])
        return (await self._doctor.heartbeats(topic, len(partitions[topic]))).ages_s

    async def lags(self, groups: Mapping[str, Sequence[str]]) -> Sequence[Lag]:
        """Of each group and each of its topics."""
        partitions = await self._partitions([name for names in groups.values() for name in names])
        admin = AIOKafkaAdminClient(**self._options)
        consumer = AIOKafkaConsumer(**self._options, enable_auto_commit=False)
        async with kafka_errors():
            try:
                await undisturbed(admin.start())
                await undisturbed(consumer.start())
                return [
                    await _lag(admin, consumer, group, name, partitions[name])
                    for group, names in groups.items()
                    for name in names
                ]
            finally:
                await consumer.stop()
                await asyncio.shield(admin.close())

    async def _partitions(self, names: Sequence[str]) -> dict[str, list[TopicPartition]]:
        """Misconfigured if one of the topics is missing."""
        found = (await self._doctor.cluster(names)).topics
        if missing := [name for name in names if name not in found]:
            raise Misconfigured(f'there is no topic {missing[0]}: run "mailstreams migrate"')
        return {
            name: [TopicPartition(name, one.number) for one in topic.partitions]
            for name, topic in found.items()
        }


async def _lag(
    admin: AIOKafkaAdminClient,
    consumer: AIOKafkaConsumer,
    group: str,
    topic: str,
    partitions: Sequence[TopicPartition],
) -> Lag:
    committed = await committed_positions(admin, group, partitions)
    starts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    # Without a position a group reads from the beginning; what retention has removed meanwhile is nobody's to do.
    places = {p: max(committed.get(p, -1), starts[p]) for p in partitions}
    left = {p: ends[p] - place for p, place in places.items() if ends[p] > place}
    oldest = await _oldest(consumer, {p: places[p] for p in left}) if left else None
    age = None if oldest is None else max(time.time() - oldest, 0.0)
    return Lag(group=group, topic=topic, records=sum(left.values()), age=age)


async def _oldest(consumer: AIOKafkaConsumer, places: Mapping[TopicPartition, int]) -> float | None:
    """When the oldest of the records at these places was written, as far as they can be read in time; seconds since 1970."""
    consumer.assign(list(places))
    for partition, place in places.items():
        consumer.seek(partition, place)
    times: dict[TopicPartition, float] = {}
    deadline = time.monotonic() + _READ_S
    while (waiting := places.keys() - times.keys()) and time.monotonic() < deadline:
        found = await consumer.getmany(*waiting, timeout_ms=_POLL_MS, max_records=len(places))
        for partition, records in found.items():
            if records:
                times.setdefault(partition, records[0].timestamp / 1000)
    return min(times.values(), default=None)
