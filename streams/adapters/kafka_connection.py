"""Connections of aiokafka under uvloop, and consumers whose tasks have ended."""

import asyncio
import logging
from contextlib import suppress
from functools import cache, wraps
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError

from streams.domain.errors import Unavailable

log = logging.getLogger(__name__)

_TASKS: Final = (("_fetcher", "_fetch_task"), ("_coordinator", "_coordination_task"))


class ConsumerEnded(Unavailable):
    """This consumer will never read again: only a new one helps."""


@cache
def tell_ended_connections() -> None:
    """Makes a write to a connection that has just ended an error of Kafka, under every event loop.

    asyncio's own transports let such a write pass, and the end is noticed by the reader. Those of uvloop raise RuntimeError.
    aiokafka foresees OSError alone (aiokafka/conn.py, send), so that its tasks die of it: that of a consumer's fetches in silence.
    """
    send = AIOKafkaConnection.send

    @wraps(send)
    def sending(self: Any, request: Any, expect_response: bool = True) -> Any:
        try:
            return send(self, request, expect_response)
        except RuntimeError as error:
            writer = self._writer
            if writer is not None and not writer.transport.is_closing():
                raise
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(
                f"Connection at {self.host}:{self.port} has ended: {error}"
            ) from error

    AIOKafkaConnection.send = sending


def check_alive(consumer: AIOKafkaConsumer) -> None:
    """ConsumerEnded where a task of the consumer has ended, of an error that aiokafka did not foresee.

    Without its fetches getmany() finds nothing, for ever and without a word; without its coordination every call raises.
    """
    for part, name in _TASKS:
        task = getattr(getattr(consumer, part, None), name, None)
        if task is not None and task.done():
            error = None if task.cancelled() else task.exception()
            raise ConsumerEnded(f"Kafka: the consumer has ended and is made anew: {error!r}")


async def close(consumer: AIOKafkaConsumer, timeout_s: float) -> bool:
    """Closes without waiting longer for a broker that does not answer; False if not all of it went in order.

    stop() raises again what has ended one of the consumer's tasks, whatever that was, before the connections are closed.
    """
    try:
        await asyncio.wait_for(consumer.stop(), timeout_s)
    except Exception as error:  # noqa: BLE001 see above
        log.warning(
            "Kafka consumer did not close",
            extra={"action": "kafka.consumer_not_closed", "error": repr(error)},
        )
        with suppress(TimeoutError, OSError, KafkaError):
            await asyncio.wait_for(consumer._client.close(), timeout_s)
        return False
    return True
