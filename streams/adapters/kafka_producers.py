"""Producers: acks=all, idempotent, and given up at once when a delivery fails."""

import asyncio
import logging
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.adapters.kafka import client_options, kafka_errors, undisturbed

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 128 * 1024
REQUEST_TIMEOUT_S: Final = 20.0
_CLOSE_TIMEOUT_S: Final = 2.0


async def connected(
    bootstrap_servers: str,
    *,
    client_id: str = "mailstreams-relay",
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> AIOKafkaProducer:
    """A new producer; Unavailable when no broker answers within the time, which is also that of each request."""
    producer = AIOKafkaProducer(
        **client_options(bootstrap_servers, client_id),
        acks="all",
        enable_idempotence=True,
        max_batch_size=BATCH_BYTES,
        request_timeout_ms=int(timeout_s * 1000),
    )
    try:
        async with kafka_errors():
            await asyncio.wait_for(undisturbed(producer.start()), timeout_s)
    except BaseException:
        await abandon(producer)
        raise
    return producer


async def abandon(producer: AIOKafkaProducer) -> None:
    """Closes without sending what waits: stop() alone would send it all, behind the records of the next producer.

    aiokafka has no public way for that, so its sender is ended and its queue emptied first.
    """
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
        await asyncio.wait([sender], timeout=1.0)
        if not sender.done():
            await producer.client.close()
            sender.cancel()
            await asyncio.wait([sender], timeout=_CLOSE_TIMEOUT_S)
        producer._message_accumulator._batches.clear()
        producer._message_accumulator._pending_batches.clear()
    try:
        await asyncio.wait_for(producer.stop(), _CLOSE_TIMEOUT_S)
    except (TimeoutError, OSError, KafkaError):
        log.warning("Kafka producer did not close", extra={"action": "kafka.producer_not_closed"})
