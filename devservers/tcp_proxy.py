"""A TCP proxy before a server on loopback that delays, mutes, cuts and resets; before Kafka also by kind of request.

It runs in a thread of its own, so that blocking and asynchronous programs alike use it:

    with TcpProxy(upstream=servers.postgres.port) as proxy:
        proxy.answer_delay_s = 2.0
        proxy.reset()
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

CHUNK = 256 * 1024
WAITING = 256  # pieces of one direction that may wait for their delay
PRODUCE = 0  # Kafka's number of this kind of request
_ANSWER_SECONDS = 10.0
_ABORT = struct.pack("ii", 1, 0)  # linger on, for no time: close() sends a reset

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Judge = Callable[[bytes], tuple[bytes, bool]]


class TcpProxy:
    """Every attribute may be changed at any time and counts from the next bytes on.

    upstream is the port of the server; kafka tells that whole frames pass, and lets `dropped_answers` name kinds of requests.
    """

    def __init__(self, *, upstream: int = 0, port: int = 0, kafka: bool = False) -> None:
        self.upstream = upstream
        self.port = port
        self.refusing = False  # new connections are closed at once
        self.request_delay_s = 0.0
        self.answer_delay_s = 0.0
        self.muted = False  # nothing comes back; what was held back is lost for its connection
        # Nothing passes either way, no end of a side either, as where a network has lost its route. What lost something stays
        # silent until reset().
        self.swallowing = False
        self.truncate_answers_at: int | None = None  # so many bytes of an answer, then the end
        # Numbers of Kafka's requests whose answers are lost. A stream has no holes: whatever would follow on the same
        # connection is lost as well, until the client gives the connection up.
        self.dropped_answers: frozenset[int] = frozenset()
        self.connections = 0  # ever taken
        self.lost_answers: Counter[int] = Counter()  # by kind of request; without kafka by 0
        self.kafka = kafka
        self._open: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listens; `port` says where."""
        self._thread.start()
        self._wait_for(self._listen())

    def stop(self) -> None:
        """Closes the port and every connection. It cannot be started again."""
        if self._thread.is_alive():
            self._wait_for(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def reset(self) -> None:
        """Resets every open connection, to both sides."""
        self._wait_for(self._for_each(_Connection.abort))

    def close(self) -> None:
        """Ends every open connection in good order."""
        self._wait_for(self._for_each(_Connection.close))

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_SECONDS)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._for_each(_Connection.abort)

    async def _for_each(self, act: Callable[[_Connection], None]) -> None:
        ended = list(self._open)
        for connection in ended:
            act(connection)
        await asyncio.gather(*(c.task for c in ended if c.task), return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            back = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, (reader, writer), back)
        connection.task = asyncio.current_task()
        self._open.add(connection)
        try:
            await connection.run()
        finally:
            self._open.discard(connection)


@dataclass(eq=False, slots=True)
class _Connection:
    """One client's, with what it asked and was not answered yet."""

    proxy: TcpProxy
    client: Streams
    server: Streams
    task: asyncio.Task[Any] | None = None
    deaf: bool = False
    lost: bool = False
    ended: bool = False
    asked: dict[int, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Until one side ends, or is ended."""
        there = self._pump(self.client[0], self.server[1], self._request, answers=False)
        back = self._pump(self.server[0], self.client[1], self._answer, answers=True)
        pumps = [asyncio.ensure_future(there), asyncio.ensure_future(back)]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        judge: Judge,
        *,
        answers: bool,
    ) -> None:
        """Reads ahead of the delay, so that it is a delay and no bound of the speed."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=WAITING)
        reading = asyncio.ensure_future(self._read(reader, waiting, answers=answers))
        try:
            await self._write(waiting, writer, judge)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(
        self,
        reader: asyncio.StreamReader,
        waiting: asyncio.Queue[tuple[float, bytes]],
        *,
        answers: bool,
    ) -> None:
        clock = asyncio.get_running_loop().time
        async for data in _pieces(reader, framed=self.proxy.kafka):
            delay = self.proxy.answer_delay_s if answers else self.proxy.request_delay_s
            await waiting.put((clock() + delay, data))
        while self.proxy.swallowing and not self.ended:  # noqa: ASYNC110 another thread ends it
            await asyncio.sleep(0.02)
        await waiting.put((0.0, b""))

    async def _write(
        self,
        waiting: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        judge: Judge,
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due, data = await waiting.get()
            if not data:
                return
            await asyncio.sleep(max(0.0, due - clock()))
            passed, last = judge(data)
            self.lost = self.lost or self.proxy.swallowing
            if self.lost:
                continue
            writer.write(passed)
            await writer.drain()
            if last:
                return

    def _request(self, data: bytes) -> tuple[bytes, bool]:
        if self.proxy.kafka and len(data) >= 12:
            kind, _, correlation = struct.unpack_from(">hhi", data, 4)
            self.asked[correlation] = kind
        return data, False

    def _answer(self, data: bytes) -> tuple[bytes, bool]:
        """What of it goes on, and whether the connection ends then."""
        proxy, kind = self.proxy, 0
        if proxy.kafka and len(data) >= 8:
            kind = self.asked.pop(struct.unpack_from(">i", data, 4)[0], -1)
            self.deaf = self.deaf or kind in proxy.dropped_answers
        if self.deaf or proxy.muted:
            self.deaf = True
            proxy.lost_answers[kind] += 1
            return b"", False
        if proxy.truncate_answers_at is not None:
            return data[: proxy.truncate_answers_at], True
        return data, False

    def close(self) -> None:
        self.ended = True
        for _, writer in (self.client, self.server):
            writer.close()

    def abort(self) -> None:
        self.ended = True
        for _, writer in (self.client, self.server):
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            writer.transport.abort()


async def _pieces(reader: asyncio.StreamReader, *, framed: bool) -> AsyncIterator[bytes]:
    """The bytes as they come, or as whole frames of Kafka (a length of four bytes before each), until the end."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            if framed:
                head = await reader.readexactly(4)
                yield head + await reader.readexactly(struct.unpack(">i", head)[0])
            elif data := await reader.read(CHUNK):
                yield data
            else:
                return
