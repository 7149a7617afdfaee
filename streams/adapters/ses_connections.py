"""Connections to SES that show when a request begins to leave, and that are not used when it would be too late."""

import asyncio
import select
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import aiohttp


@dataclass(slots=True, kw_only=True)
class Writing:
    """One call on its way to the wire. written: a byte of the request may have left."""

    latest: float
    on_begin: Callable[[], None]
    written: bool = False
    begun_at: float = 0.0
    reused: bool = False
    refused: Exception | None = None
    connection: aiohttp.connector.Connection | None = None
    transport: asyncio.WriteTransport | None = None

    def begin(self) -> None:
        """Right before the first byte is handed to the transport; if on_begin raises, none will be."""
        try:
            self.on_begin()
        except Exception as error:  # kept apart from what the network raises, which may look alike
            self.refused = error
            raise
        self.written = True
        self.begun_at = time.monotonic()

    def abort(self) -> None:
        """The call is over: what is left of its request in buffers never leaves, which closing alone would let it.

        Once the whole answer has come the connection is given back, and may be another call's by now.
        """
        if self.transport is None or self.connection is None:
            return
        if self.connection.protocol is not None or self.transport.is_closing():
            self.transport.abort()


# The call that the current task makes.
current: ContextVar[Writing] = ContextVar("writing")


class SlotMissed(Exception):
    """The call's time was over when its connection was there."""


class PunctualConnector(aiohttp.TCPConnector):
    """Gives a call up if it is too late once its connection is there; the connection serves the next one."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 it overrides
    ) -> aiohttp.connector.Connection:
        writing = current.get()
        while True:
            writing.reused = False
            connection = await super().connect(req, traces, timeout)
            if not (writing.reused and _is_spent(connection)):
                break
            connection.close()
        if time.monotonic() > writing.latest:
            connection.release()
            raise SlotMissed
        writing.connection = connection
        # uvloop's is of another class.
        writing.transport = cast(asyncio.WriteTransport, connection.transport)
        return connection


def _is_spent(connection: aiohttp.connector.Connection) -> bool:
    """Whether an idle connection was ended by the other side, or has an answer that nobody asked for.

    Asked of the socket itself: the event loop may not have looked yet, and a request written now would end unknown.
    """
    transport, protocol = connection.transport, connection.protocol
    if transport is None or protocol is None or transport.is_closing() or protocol.should_close:
        return True
    readable = select.poll()
    readable.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(readable.poll(0))


def traced() -> aiohttp.TraceConfig:
    """Tells the Writing of a call of its connection and its beginning: before the first byte of it is written."""

    async def reused(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.reused = True

    async def begin(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.begin()

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(reused)
    trace.on_request_headers_sent.append(begin)
    return trace
