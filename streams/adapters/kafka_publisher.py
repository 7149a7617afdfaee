"""Writing to Kafka so that a record counts only when every in-sync replica has it."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from cryptography.fernet import Fernet

from streams.adapters.kafka import kafka_errors
from streams.adapters.kafka_lanes import Lanes
from streams.adapters.kafka_producers import abandon, connected
from streams.domain.errors import BadMessage
from streams.domain.records import NewRecord, Record
from streams.domain.topics import unreadable
from streams.runtime import metrics

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 5.0


class KafkaPublisher:
    """An idempotent producer with acks=all; calls may overlap, and share batches. A producer that failed once is discarded and
    replaced by the next call: aiokafka cannot recover its sequence numbers after an expired batch."""

    def __init__(self, bootstrap_servers: str, *, client_id: str, timeout_s: float = 10.0) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._open: _Open | None = None
        self._starting = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connects; Unavailable when no broker answers."""
        await self._connected()

    async def _connected(self) -> "_Open":
        if self._open is None:
            async with self._starting:
                if self._open is None:
                    self._open = await self._connect()
        return self._open

    async def _connect(self) -> "_Open":
        producer = await connected(
            self._bootstrap_servers, client_id=self._client_id, timeout_s=self._timeout_s
        )
        lanes = Lanes(
            producer, timeout_s=self._timeout_s, on_failure=lambda: self._discard(producer)
        )
        return _Open(producer=producer, lanes=lanes)

    async def publish(self, records: Sequence[NewRecord]) -> None:
        """Returns when all of them are acknowledged; Unavailable when one may not be (some may still arrive, once or twice).

        BadMessage, before any is sent, where the partition depends on a key that is empty: clients disagree about its place.
        """
        for record in records:
            if record.key == b"" and record.partition is None:
                raise BadMessage(f"a record for {record.topic} has an empty key")
        opened = self._open or await self._connected()
        for record in records:
            if record.topic not in opened.topics:
                await self._know(opened, record.topic)
        if records:
            await opened.lanes.put(records)

    async def _know(self, opened: "_Open", topic: str) -> None:
        async with kafka_errors(), asyncio.timeout(self._timeout_s):
            await opened.producer.partitions_for(topic)
        opened.topics.add(topic)

    def _discard(self, producer: AIOKafkaProducer) -> None:
        if self._open is not None and self._open.producer is producer:
            self._open = None
        log.warning("Kafka producer is replaced", extra={"action": "kafka.producer_replaced"})
        leaving = asyncio.get_running_loop().create_task(abandon(producer))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def stop(self) -> None:
        """Waits a while for what is under way, then disconnects."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.lanes.drained(CLOSE_TIMEOUT_S)
            await _close(opened.producer)
        if self._leaving:
            await asyncio.wait(self._leaving)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A connected producer, the records on their way through it, and the topics whose partitions it knows."""

    producer: AIOKafkaProducer
    lanes: Lanes
    topics: set[str] = field(default_factory=set)


async def _close(producer: AIOKafkaProducer) -> None:
    """Closes without waiting for a broker that does not answer."""
    try:
        await asyncio.wait_for(producer.stop(), CLOSE_TIMEOUT_S)
    except (TimeoutError, OSError, KafkaError):
        log.warning("Kafka producer did not close", extra={"action": "kafka.producer_not_closed"})
        await abandon(producer)
        await producer.client.close()  # stop() does nothing when it is called again


class UnreadableTopic:
    """Sets records aside in <topic>.unreadable: the value encrypted (Fernet), where it came from in headers."""

    def __init__(self, publisher: KafkaPublisher, *, key: bytes, stage: str) -> None:
        self._publisher = publisher
        self._fernet = Fernet(key)
        self._stage = stage

    async def stop(self) -> None:
        """Disconnects its publisher; a later put() connects again."""
        await self._publisher.stop()

    async def put(self, record: Record, *, reason: str) -> None:
        """Returns when it is acknowledged; Unavailable otherwise."""
        headers = {
            "reason": reason,
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "stage": self._stage,
        }
        value = None if record.value is None else self._fernet.encrypt(record.value)
        await self._publisher.publish(
            [
                NewRecord(
                    topic=unreadable(record.topic),
                    key=record.key,
                    partition=0 if record.key == b"" else None,
                    value=value,
                    headers=tuple((name, text.encode()) for name, text in headers.items()),
                )
            ]
        )
        metrics.UNREADABLE_RECORDS.labels(stage=self._stage).inc()
        log.warning(
            "record is unreadable and was set aside",
            extra={
                "action": "record.unreadable",
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "reason": reason,
            },
        )
