"""A process of TCP links from one port to others, which are cut on order.

Lines of JSON over a Unix socket: {"link": name, "port": n, "to": [ports]} makes one; {"cut": name, "how": ..., "seconds": s,
"share": x} cuts it. A link with several targets gives each connection to the next that takes it.

how: `reset` now, of a share of the connections; `refuse` new ones for a while; `delay` what comes back by up to 0.3 s for a
while; `mute`: for a while what comes back is swallowed, then its connections are reset; `freeze`: nothing passes for a while,
then a reset; `truncate`: half of the next answer, then a reset; `late`: what the open connections send is held back for a while
and then arrives, also if the client has gone meanwhile; new ones pass.
"""

import asyncio
import json
import random
import socket
import struct
import sys
from contextlib import suppress
from typing import Any, Final

CHUNK: Final = 128 * 1024
_ABORT: Final = struct.pack("ii", 1, 0)
_LONGEST_DELAY_S: Final = 0.3

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """One listening port."""

    def __init__(self, name: str, targets: list[int]) -> None:
        self.name = name
        self.targets = targets
        self.open: set[Connection] = set()
        self.cut: dict[str, float] = {}
        self.late: set[Connection] = set()
        self._turn = 0

    def under(self, how: str) -> bool:
        """Whether it is cut that way at this moment."""
        return self.cut.get(how, 0.0) > asyncio.get_running_loop().time()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back = None if self.under("refuse") else await self._target()
        if back is None:
            writer.transport.abort()
            return
        connection = Connection(self, (reader, writer), back)
        self.open.add(connection)
        try:
            await connection.run()
        finally:
            self.open.discard(connection)

    async def _target(self) -> Streams | None:
        for _ in self.targets:
            self._turn += 1
            port = self.targets[self._turn % len(self.targets)]
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None

    async def do(self, how: str, seconds: float, share: float) -> None:
        """Cuts it; returns when the cut is over."""
        if how == "reset":
            self._reset(share)
            return
        cut = set(self.open)
        if how == "late":
            self.late |= cut
            await asyncio.sleep(seconds)
            self.late -= cut
            return
        loop = asyncio.get_running_loop()
        self.cut[how] = loop.time() + seconds
        await asyncio.sleep(seconds)
        if how in ("mute", "freeze"):
            for connection in cut & self.open:
                connection.abort()

    def _reset(self, share: float) -> None:
        for connection in list(self.open):
            if random.random() < share:  # noqa: S311 the order says how many, nobody which
                connection.abort()


class Connection:
    """One client's, and one to the target."""

    def __init__(self, link: Link, client: Streams, target: Streams) -> None:
        self._link = link
        self._client = client
        self._target = target

    async def run(self) -> None:
        pumps = [
            asyncio.create_task(self._pump(self._client[0], self._target[1], answers=False)),
            asyncio.create_task(self._pump(self._target[0], self._client[1], answers=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in (self._client, self._target):
                writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        link = self._link
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                while not answers and self in link.late:  # noqa: ASYNC110 time alone ends it
                    await asyncio.sleep(0.02)
                if link.cut:
                    while link.under("freeze"):  # noqa: ASYNC110 time alone ends it
                        await asyncio.sleep(0.05)
                    if answers and link.under("mute"):
                        continue
                    if answers and link.under("delay"):
                        await asyncio.sleep(random.uniform(0, _LONGEST_DELAY_S))  # noqa: S311
                    if answers and link.under("truncate"):
                        writer.write(data[: len(data) // 2])
                        await writer.drain()
                        self.abort()
                        return
                writer.write(data)
                await writer.drain()

    def abort(self) -> None:
        for _, writer in (self._client, self._target):
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            writer.transport.abort()


class Proxy:
    """All links of one run, as the controller orders."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._cuts: set[asyncio.Task[None]] = set()

    async def serve(self, path: str) -> None:
        """Until the controller goes."""
        gone = asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                await self._do(json.loads(line))
                writer.write(b"{}\n")
            gone.set()

        async with await asyncio.start_unix_server(take, path):
            await gone.wait()

    async def _do(self, order: dict[str, Any]) -> None:
        if "link" in order:
            link = Link(order["link"], order["to"])
            await asyncio.start_server(link.take, "127.0.0.1", order["port"])
            self._links[link.name] = link
        elif "heal" in order:
            for link in self._links.values():
                link.cut.clear()
                link.late.clear()
        else:
            link = self._links[order["cut"]]
            cut = asyncio.create_task(link.do(order["how"], order["seconds"], order["share"]))
            self._cuts.add(cut)
            cut.add_done_callback(self._cuts.discard)


if __name__ == "__main__":
    import uvloop

    uvloop.run(Proxy().serve(sys.argv[1]))
