"""Posts requests as SNS does, over connections that are kept, one request at a time on each; as cheaply as Python can."""

import asyncio
import pickle
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import uvloop

GIVE_UP_S: Final = 60.0
_TICK_S: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What came of posting. started: the wall clock at which each request was due to start; answers: seconds until each answer."""

    started: Sequence[float]
    answers: Sequence[float]
    statuses: dict[str, int]
    wall_s: float
    cpu_s: float


def post_all(
    path: Path, first: int, last: int, *, port: int, connections: int, per_second: float | None
) -> Load:
    """Posts requests first to last of the pickled list at this path; per_second None: as fast as they are answered.

    With a rate a request that finds no free connection is late, and its time counts from when it was due.
    """
    requests: list[bytes] = pickle.loads(path.read_bytes())[first:last]  # noqa: S301 our own file
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Run(requests, per_second).run(port, connections))


class _Connection(asyncio.Protocol):
    """One request at a time; an answer is complete with its Content-Length."""

    def __init__(self, run: "_Run") -> None:
        self._run = run
        self._received = b""
        self._number = -1
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of another class

    def send(self, number: int, request: bytes) -> None:
        self._number = number
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        _, _, rest = head.lower().partition(b"content-length:")
        if len(body) < int(rest.split(b"\r\n", 1)[0] or 0):
            return
        self._received = b""
        self._run.answered(self, self._number, head[9:12].decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.lost(exc)


class _Run:
    """The state of one call of post_all."""

    def __init__(self, requests: Sequence[bytes], per_second: float | None) -> None:
        self._requests = requests
        self._per_second = per_second
        self._next = 0
        self._idle: deque[_Connection] = deque()
        self._due: list[float] = [0.0] * len(requests)
        self._answers: list[float] = [0.0] * len(requests)
        self._statuses: Counter[str] = Counter()
        self._done: asyncio.Future[None]
        self._left = len(requests)

    async def run(self, port: int, connections: int) -> Load:
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        opened = [
            (await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port))[1]
            for _ in range(connections)
        ]
        self._idle.extend(opened)
        cpu, self._began = time.process_time(), time.time()
        await asyncio.wait_for(self._posted(), GIVE_UP_S + self._expected_s())
        wall = time.time() - self._began
        cpu = time.process_time() - cpu
        self._done = loop.create_future()
        for connection in opened:
            connection.transport.close()
        return Load(
            started=self._due,
            answers=self._answers,
            statuses=dict(self._statuses),
            wall_s=wall,
            cpu_s=cpu,
        )

    def _expected_s(self) -> float:
        return len(self._requests) / self._per_second if self._per_second else 0.0

    async def _posted(self) -> None:
        self._fill()
        while self._per_second and self._next < len(self._requests):
            await asyncio.sleep(_TICK_S)
            self._fill()
        await self._done

    def _fill(self) -> None:
        """Gives what is due to connections that are free."""
        now = time.time()
        limit = len(self._requests)
        if self._per_second:
            limit = min(limit, int((now - self._began) * self._per_second))
        while self._idle and self._next < limit:
            number = self._next
            self._next += 1
            self._due[number] = self._began + number / self._per_second if self._per_second else now
            self._idle.popleft().send(number, self._requests[number])

    def answered(self, connection: _Connection, number: int, status: str) -> None:
        self._answers[number] = time.time() - self._due[number]
        self._statuses[status] += 1
        self._left -= 1
        self._idle.append(connection)
        self._fill()
        if self._left == 0 and not self._done.done():
            self._done.set_result(None)

    def lost(self, error: Exception | None) -> None:
        if not self._done.done() and self._left:
            self._done.set_exception(error or ConnectionError("the endpoint closed a connection"))
