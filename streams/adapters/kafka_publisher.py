"""Writing to Kafka so that a record counts only when every in-sync replica has it."""

import asyncio
import logging
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from cryptography.fernet import Fernet

from streams.adapters.kafka import client_options, kafka_errors
from streams.adapters.kafka_producers import abandon
from streams.domain.errors import Unavailable
from streams.domain.records import NewRecord, Record
from streams.domain.topics import unreadable
from streams.runtime import metrics

log = logging.getLogger(__name__)


class KafkaPublisher:
    """An idempotent producer with acks=all. A producer that failed once is discarded and replaced by the next call:
    aiokafka cannot recover its sequence numbers after an expired batch."""

    def __init__(self, bootstrap_servers: str, *, client_id: str, timeout_s: float = 10.0) -> None:
        self._options = client_options(bootstrap_servers, client_id)
        self._timeout_s = timeout_s
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Connects; Unavailable when no broker answers."""
        async with self._starting:
            if self._producer is None:
                self._producer = await self._connected()

    async def _connected(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            **self._options,
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            max_batch_size=128 * 1024,
            request_timeout_ms=int(self._timeout_s * 1000),
        )
        try:
            async with kafka_errors():
                await asyncio.wait_for(producer.start(), self._timeout_s)
        except BaseException:
            await producer.stop()
            raise
        return producer

    async def publish(self, records: Sequence[NewRecord]) -> None:
        """Returns when all of them are acknowledged; Unavailable when one may not be (some may still arrive, once or twice)."""
        await self.start()
        producer = self._producer
        if producer is None:
            raise Unavailable("Kafka: the producer was replaced, try again")
        try:
            async with kafka_errors(), asyncio.timeout(self._timeout_s):
                sent = [
                    await producer.send(
                        r.topic, r.value, key=r.key, partition=r.partition, headers=list(r.headers)
                    )
                    for r in records
                ]
                await asyncio.gather(*sent)
        except Unavailable:
            await self._discard(producer)
            raise

    async def _discard(self, producer: AIOKafkaProducer) -> None:
        if self._producer is producer:
            self._producer = None
            log.warning("Kafka producer is replaced", extra={"action": "kafka.producer_replaced"})
            await abandon(producer)

    async def stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _close(producer)


async def _close(producer: AIOKafkaProducer) -> None:
    """Closes without waiting for a broker that does not answer."""
    try:
        await asyncio.wait_for(producer.stop(), 5.0)
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
