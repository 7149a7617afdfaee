"""An HTTP/1.1 client that sends exactly the headers it is given, and bodies that never end."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

ANSWER_WITHIN_S: Final = 15.0
# Nothing is waited for longer: a service that swallows an endless body must not stop the run.
PATIENCE_S: Final = 60.0
_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """status 413 without headers: the service closed the connection while the body was being sent."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    seconds: float = 0.0
    cut_off: bool = False


class NoAnswer(Exception):
    """The service closed the connection, or said nothing for a minute."""


async def post(
    address: str,
    headers: Mapping[str, str],
    body: bytes,
    stream: tuple[str, int | None] | None = None,
) -> Answer:
    """stream: a text that is repeated up to so many bytes (None: for ever), in chunks, instead of the body."""
    host, port = address.rsplit(":", 1)
    started = time.monotonic()
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(PATIENCE_S):
            sent = _Sent(address=address, headers=headers, body=body, stream=stream)
            return await _exchange(reader, writer, sent, started)
    except TimeoutError:
        raise NoAnswer(f"no answer within {PATIENCE_S:g} s") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    address: str
    headers: Mapping[str, str]
    body: bytes
    stream: tuple[str, int | None] | None

    @property
    def names(self) -> set[str]:
        return {name.lower() for name in self.headers}

    @property
    def is_chunked(self) -> bool:
        return self.stream is not None or "transfer-encoding" in self.names

    def head(self) -> bytes:
        lines = ["POST /sns HTTP/1.1"]
        if "host" not in self.names:
            lines.append(f"Host: {self.address}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.is_chunked and "transfer-encoding" not in self.names:
            lines.append("Transfer-Encoding: chunked")
        elif not self.is_chunked and "content-length" not in self.names:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass")

    def parts(self) -> Iterable[bytes]:
        return (self.body,) if self.stream is None else _repeated(*self.stream)


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    sent: "_Sent",
    started: float,
) -> Answer:
    writer.write(sent.head())
    sending = asyncio.create_task(_send(writer, sent.parts(), chunked=sent.is_chunked))
    try:
        return await _answer(reader, started)
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        if sending.done() and not sending.cancelled() and sending.exception() is None:
            raise NoAnswer("the connection was closed without an answer") from error
        return Answer(status=413, seconds=time.monotonic() - started, cut_off=True)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def _repeated(text: str, size: int | None) -> Iterable[bytes]:
    piece = text.encode()
    block = piece * max(1, _CHUNK // len(piece))
    if size is None:
        return itertools.repeat(block)
    whole, rest = divmod(size, len(block))
    return itertools.chain(itertools.repeat(block, whole), (block[:rest],) if rest else ())


async def _send(writer: asyncio.StreamWriter, parts: Iterable[bytes], *, chunked: bool) -> None:
    for part in parts:
        if chunked and part:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        elif not chunked:
            writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    if chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _answer(reader: asyncio.StreamReader, started: float) -> Answer:
    status = 100
    while 100 <= status < 200:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ", 2)[1])
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    length = headers.get("content-length")
    text = await (reader.readexactly(int(length)) if length is not None else reader.read(_CHUNK))
    return Answer(
        status=status,
        headers=headers,
        text=text.decode(errors="replace"),
        seconds=time.monotonic() - started,
    )
