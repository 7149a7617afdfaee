"""Connections that have ended under uvloop, as aiokafka meets them."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

import pytest
import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionRequest

from streams.adapters.kafka_connection import tell_ended_connections


async def write_after_the_end() -> None:
    """What a fetch does whose connection was reset a moment ago, before the reader has noticed."""
    tell_ended_connections()
    ended = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    connection = AIOKafkaConnection(host, port)
    _, connection._writer = await asyncio.open_connection(host, port)
    connection._writer.transport.abort()
    await ended.wait()
    server.close()
    await server.wait_closed()
    connection.send(ApiVersionRequest())


def run(
    story: Callable[[], Coroutine[None, None, None]], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(story())


def test_write_to_a_connection_that_has_ended_is_an_error_of_kafka_under_uvloop() -> None:
    with pytest.raises(KafkaConnectionError, match="has ended"):
        run(write_after_the_end, uvloop.new_event_loop)


def test_other_errors_of_writing_stay_what_they_are() -> None:
    async def story() -> None:
        tell_ended_connections()
        connection = AIOKafkaConnection("127.0.0.1", 9)

        class Writer:
            class transport:  # noqa: N801
                @staticmethod
                def is_closing() -> bool:
                    return False

            @staticmethod
            def write(_: bytes) -> None:
                raise RuntimeError("something else")

        connection._writer = Writer()
        try:
            connection.send(ApiVersionRequest())
        finally:
            connection._writer = None

    with pytest.raises(RuntimeError, match="something else"):
        run(story, asyncio.new_event_loop)
