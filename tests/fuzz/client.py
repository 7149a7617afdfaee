"""A client that sends whatever it is told, and reads every answer that comes."""

import asyncio
import re
from contextlib import suppress

STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")
LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")
LONGEST_S = 15.0
# A busy machine may close a connection before it hears what was sent: SNS comes again too.
TRIES = 4


class NoAnswerError(Exception):
    """The connection ended, or 15 s passed, without an answer."""


class Client:
    """One connection that is kept, and others for what would break it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, str]:
        """Status and text of the answer to a well-formed request."""
        for tries in range(TRIES):
            try:
                async with asyncio.timeout(LONGEST_S):
                    return await self._asked(request)
            except (ConnectionError, asyncio.IncompleteReadError):
                await self.close()  # perhaps it was closed meanwhile
                if tries == TRIES - 1:
                    raise NoAnswerError("the connection ended without an answer") from None
            except TimeoutError:
                raise NoAnswerError("no answer within 15 s") from None
        raise AssertionError

    async def _asked(self, request: bytes) -> tuple[int, str]:
        if self._kept is None:
            self._kept = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._kept
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        text = await reader.readexactly(int(length[1]) if length else 0)
        if b"Connection: close" in head:
            await self.close()
        return int(head.split(b" ", 2)[1]), text.decode().strip()

    async def send(self, wire: bytes) -> list[tuple[int, str]]:
        """Every answer to these bytes, until the endpoint closes the connection."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except ConnectionError:
            raise NoAnswerError("no connection") from None
        writer.write(wire)
        got = b""
        try:
            async with asyncio.timeout(LONGEST_S):
                while chunk := await reader.read(65536):
                    got += chunk
        except ConnectionError:
            pass
        except TimeoutError:
            raise NoAnswerError("the connection is open after 15 s") from None
        finally:
            await closed(writer)
        return list(answers(got))

    async def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            await closed(kept[1])


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def answers(got: bytes) -> list[tuple[int, str]]:
    """The answers that stand in these bytes one after the other."""
    found = []
    while (status := STATUS.match(got)) is not None:
        head, _, rest = got.partition(b"\r\n\r\n")
        length = LENGTH.search(head + b"\r\n")
        size = int(length[1]) if length else 0
        found.append((int(status[1]), rest[:size].decode(errors="replace").strip()))
        got = rest[size:]
    return found
