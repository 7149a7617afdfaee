"""Bounds of a server's connections that aiohttp has not: their number, and how long each may wait for the head of a request."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import cast

from prometheus_client import Counter, Gauge

from streams.runtime import metrics

SWEEP_S = 1.0


class Connections:
    """The open connections of one server.

    A new connection, or one on which a request has begun, has head_timeout_s until the head is complete; after an answer it
    may be silent for idle_timeout_s. At the limit the connection that has waited longest for a whole request is closed for
    the new one, so that slow strangers keep nobody out; where every one is at work, the new one is closed.
    """

    def __init__(
        self,
        *,
        limit: int,
        head_timeout_s: float,
        idle_timeout_s: float,
        open_now: Gauge = metrics.EVENTS_CONNECTIONS,
        closed: Counter = metrics.EVENTS_CONNECTIONS_CLOSED,
    ) -> None:
        self.limit = limit
        self.head_timeout_s = head_timeout_s
        self.idle_timeout_s = idle_timeout_s
        self._open_now = open_now
        self._closed = closed
        self._open: dict[Hashable, _Connection] = {}
        self._waiting: OrderedDict[_Connection, None] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + SWEEP_S
        self._sweep = loop.call_at(due, self._swept, due)

    def stop(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()

    def guarded(self, protocol: asyncio.Protocol) -> asyncio.Protocol:
        """The protocol within these bounds."""
        return _Connection(self, protocol)

    def reading(self, protocol: Hashable) -> None:
        """The rest of a request is being read by somebody who has a time limit for it; the connection may still have to make room."""
        if (connection := self._open.get(protocol)) is not None:
            connection.deadline = math.inf

    def working(self, protocol: Hashable) -> None:
        """A whole request of this protocol's connection is worked on: until it is done nothing closes the connection."""
        if (connection := self._open.get(protocol)) is not None:
            self._waiting.pop(connection, None)

    def done(self, protocol: Hashable) -> None:
        """Its answer is ready."""
        if (connection := self._open.get(protocol)) is not None:
            connection.idle = True
            connection.deadline = asyncio.get_running_loop().time() + self.idle_timeout_s
            self._waiting[connection] = None

    def admit(self, connection: "_Connection") -> bool:
        """Makes room for it; False if there is none."""
        if len(self._open) >= self.limit:
            longest = next(iter(self._waiting), None)
            self._counted("refused" if longest is None else "displaced")
            if longest is None:
                return False
            longest.abort()
            self.left(longest)
        self._open[connection.inner] = connection
        self._waiting[connection] = None
        self._open_now.set(len(self._open))
        return True

    def left(self, connection: "_Connection") -> None:
        self._waiting.pop(connection, None)
        self._open.pop(connection.inner, None)
        self._open_now.set(len(self._open))

    def _swept(self, due: float) -> None:
        """Time in which we stood still, and heard nobody, does not count."""
        now = asyncio.get_running_loop().time()
        if (late := now - due) > SWEEP_S:
            for connection in self._waiting:
                connection.deadline += late
        for connection in [c for c in self._waiting if c.deadline <= now]:
            self._counted("idle" if connection.idle else "slow")
            connection.abort()
            self.left(connection)
        self.start()

    def _counted(self, why: str) -> None:
        self._closed.labels(why=why).inc()


class _Connection(asyncio.Protocol):
    """Hands everything on to the protocol inside, and knows since when it waits."""

    __slots__ = ("_admitted", "_owner", "_transport", "deadline", "idle", "inner")

    def __init__(self, owner: Connections, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self.idle = False
        self.deadline = 0.0
        self._owner = owner
        self._admitted = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of another class
        self._head_begins()
        self._admitted = self._owner.admit(self)
        if self._admitted:
            self.inner.connection_made(transport)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.idle:
            self._head_begins()
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._admitted:
            self._owner.left(self)
            self.inner.connection_lost(exc)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _head_begins(self) -> None:
        """Bytes that drip in later do not move the deadline."""
        self.idle = False
        self.deadline = asyncio.get_running_loop().time() + self._owner.head_timeout_s
