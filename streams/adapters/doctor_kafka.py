"""What the doctor reads of Kafka: brokers, topics, their settings, and the heartbeats at the end of the suppressions.

Topics are asked for all at once, never by name: a broker with auto.create.topics.enable would make one that it is asked for.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError

from streams.adapters.kafka import client_options, kafka_errors, undisturbed
from streams.domain.diagnosis_kafka import Cluster, Heartbeats, Partition, Topic
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.suppression_values import time_of
from streams.domain.suppressions import HEARTBEAT_PREFIX

_CLIENT: Final = "mailstreams-doctor"
# Of each partition so many offsets before the end are read: with a heartbeat a second enough, however busy it is.
_TAIL: Final = 500
_READ_S: Final = 5.0
_POLL_MS: Final = 200
_REQUEST_MS: Final = 5000


class DoctorKafka:
    """Methods raise Unavailable if no broker answers."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    async def cluster(self, names: Iterable[str]) -> Cluster:
        return await _cluster(self._bootstrap_servers, names)

    async def heartbeats(self, topic: str, partitions: int) -> Heartbeats:
        """Joins no group and commits nothing. The topic has to exist."""
        return await _heartbeats(self._bootstrap_servers, topic, partitions)


async def _cluster(bootstrap_servers: str, names: Iterable[str]) -> Cluster:
    async with _connected(bootstrap_servers) as admin:
        described = await admin.describe_cluster()
        everything = {topic["topic"]: topic for topic in await admin.describe_topics()}
        found = {name: everything[name] for name in names if name in everything}
        settings = await _settings(admin, found)
    return Cluster(
        brokers=[broker["node_id"] for broker in described["brokers"]],
        topics={
            name: Topic(
                partitions=[_partition(one) for one in topic["partitions"]],
                settings=settings.get(name),
            )
            for name, topic in found.items()
            if topic["partitions"]
        },
    )


async def _heartbeats(bootstrap_servers: str, topic: str, partitions: int) -> Heartbeats:
    consumer = AIOKafkaConsumer(
        **_options(bootstrap_servers),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    places = [TopicPartition(topic, number) for number in range(partitions)]
    async with kafka_errors():
        try:
            await undisturbed(consumer.start())
            consumer.assign(places)
            starts = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
            beats = await _tail(consumer, starts, ends)
        finally:
            await consumer.stop()
    now = time.time()
    return Heartbeats(
        ages_s={
            place.partition: now - beats[place] if place in beats else None for place in places
        },
        empty=all(end == 0 for end in ends.values()),
    )


async def _tail(
    consumer: AIOKafkaConsumer,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, float]:
    """When the newest heartbeat of each partition was, as far as one stands near its end."""
    beats: dict[TopicPartition, float] = {}
    for place, end in ends.items():
        consumer.seek(place, max(starts[place], end - _TAIL))
    deadline = time.monotonic() + _READ_S
    left = {place for place, end in ends.items() if starts[place] < end}
    while left and time.monotonic() < deadline:
        found = await consumer.getmany(*left, timeout_ms=_POLL_MS)
        for place, records in found.items():
            for record in records:
                if (record.key or b"").startswith(HEARTBEAT_PREFIX):
                    beats[place] = max(_time(record.value), beats.get(place, 0.0))
        left = {place for place in left if await consumer.position(place) < ends[place]}
    return beats


def _time(value: bytes | None) -> float:
    """0 for what is no heartbeat: far too old."""
    try:
        return time_of(orjson.loads(value or b"")["heartbeat"]).timestamp()
    except (ValueError, TypeError, KeyError):
        return 0.0


async def _settings(
    admin: AIOKafkaAdminClient, names: Iterable[str]
) -> dict[str, dict[str, str] | None]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    settings: dict[str, dict[str, str] | None] = {}
    for answer in await admin.describe_configs(resources) if resources else ():
        for code, _, _, name, entries in answer.resources:
            read = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
            settings[name] = read if code == 0 else None
    return settings


def _partition(told: dict[str, Any]) -> Partition:
    leader = told["leader"]
    return Partition(
        number=told["partition"],
        leader=leader if leader >= 0 else None,
        replicas=list(told["replicas"]),
        in_sync=list(told["isr"]),
    )


def _options(bootstrap_servers: str) -> dict[str, Any]:
    return client_options(bootstrap_servers, _CLIENT) | {"request_timeout_ms": _REQUEST_MS}


@asynccontextmanager
async def _connected(bootstrap_servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**_options(bootstrap_servers))
    async with kafka_errors():
        try:
            try:
                await undisturbed(admin.start())
            except ValueError:
                raise Misconfigured(
                    "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS is no list of host:port"
                ) from None
            yield admin
        except KafkaConnectionError as error:
            raise Unavailable(f"Kafka at {bootstrap_servers} cannot be reached") from error
        finally:
            await asyncio.shield(admin.close())
