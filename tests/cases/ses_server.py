"""A fake SES over TLS, in a thread of its own, so that what it sees is on time whatever the rest of the process does."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.cases.envelopes import pem
from tests.cases.placeholders import filled
from tests.cases.ses_network import SNS
from tests.cases.ses_script import Call, Script

T = TypeVar("T")

SEND_EMAIL: Final = "/v2/email/outbound-emails"
GET_ACCOUNT: Final = "/v2/email/account"
_LARGEST: Final = 128 * 1024 * 1024
_REASONS: Final = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}


class ServerThread:
    """The loop in which every fake answers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fake SES", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        # Before others where that is allowed: what it sees late looks like a burst.
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
        self._loop.run_forever()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(slots=True, kw_only=True)
class FakeSes:
    """The SES of one variant. on_accepted is called in the thread, before the answer, with the number of messages accepted
    so far and the port that the call came in by."""

    script: Script
    context: ssl.SSLContext
    account: Callable[[], Mapping[str, Any]]
    on_accepted: Callable[[int, int], None] = lambda _, __: None
    strange: list[str] = field(default_factory=list)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> int:
        """A port of its own for each process that calls."""
        server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, ssl=self.context, limit=1024 * 1024
        )
        self._servers.append(server)
        return _port(server)

    async def open_gate(self, port_for_call: Callable[[], int | None]) -> int:
        """A port that tells a process, in one line, by which port its next connection goes; 0: it is refused."""

        async def asked(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"%d\n" % (port_for_call() or 0))
            with contextlib.suppress(OSError):
                await writer.drain()
                writer.close()
                await writer.wait_closed()

        server = await asyncio.start_server(asked, "127.0.0.1", 0)
        self._servers.append(server)
        return _port(server)

    async def open_broken(self) -> int:
        """A port where the TLS handshake fails."""
        server = await asyncio.start_server(_no_handshake, "127.0.0.1", 0)
        self._servers.append(server)
        return _port(server)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError, ValueError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Reads a request and answers; whether the connection stays open."""
        method, path, headers = await _head(reader)
        body = await reader.readexactly(min(int(headers.get("content-length", 0)), _LARGEST))
        if (method, path) == ("GET", GET_ACCOUNT):
            await _answer(writer, 200, {}, json.dumps(dict(self.account())).encode())
            return True
        if method == "GET" and headers.get("host") == SNS and path.endswith(".pem"):
            await _answer(writer, 200, {}, pem("trusted"))
            return True
        if (method, path) != ("POST", SEND_EMAIL):
            self.strange.append(f"{method} {headers.get('host')}{path}")
            await _answer(writer, 404, {}, b"{}")
            return True
        port = writer.get_extra_info("sockname")[1]
        request, wrong = _request(headers, body)
        call = self.script.take(request, port=port, wrong=wrong)
        try:
            if call.accepted_at is not None:
                self.on_accepted(len(self.script.accepted), port)
            return await self._carry_out(call, reader, writer)
        finally:
            call.ended = time.monotonic()

    async def _carry_out(
        self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        answer, fault = call.answer, call.answer.get("fault")
        gone = asyncio.ensure_future(reader.read(1))
        try:
            # A client that hangs up ends its call, however long the answer would have taken.
            waits = None if fault == "no-answer" else answer.get("delay_s", 0.0)
            if waits != 0.0:
                done, _ = await asyncio.wait([gone], timeout=waits)
                if done:
                    return False
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        if fault in ("reset-after-write", "close-after-write"):
            if fault == "reset-after-write":
                _reset_on_close(writer)
                writer.transport.abort()
            else:
                writer.close()
                await writer.wait_closed()
            return False
        headers, body = _content(call)
        keep = fault is None and not self.script.closes_connections
        if not keep:
            headers["Connection"] = "close"
        cut = len(body) // 2 if fault == "truncated-body" else len(body)
        await _answer(writer, int(answer["status"]), headers, body, upto=cut)
        if not keep:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return keep


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    pairs = (line.partition(":") for line in lines[1:] if line)
    return method, path, {name.lower(): value.strip() for name, _, value in pairs}


def _request(
    headers: Mapping[str, str], body: bytes
) -> tuple[Mapping[str, Any] | None, str | None]:
    """The request's JSON, and what SES itself would not even look at."""
    if "authorization" not in headers:
        return None, "the call is not signed"
    try:
        request = json.loads(body)
    except ValueError as error:
        return None, f"the body is not JSON: {error}"
    if not isinstance(request, dict):
        return None, "the body is not one object"
    return request, None


def _content(call: Call) -> tuple[dict[str, str], bytes]:
    headers = {str(name): str(value) for name, value in call.answer.get("headers", {}).items()}
    given = filled(
        call.answer["body"],
        lambda name: call.message_id if name == "provider-message-id" else None,
    )
    if isinstance(given, str):
        return headers, given.encode()
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/json"
    return headers, json.dumps(given).encode()


async def _answer(
    writer: asyncio.StreamWriter,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    upto: int | None = None,
) -> None:
    length = {} if status in (204, 304) else {"Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in (length | dict(headers)).items())
    start = f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n{head}\r\n"
    sent = body if status not in (204, 304) else b""
    writer.write(start.encode("latin-1", "replace") + sent[:upto])
    await writer.drain()


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _no_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads the hello and refuses it with a fatal alert (handshake_failure)."""
    with contextlib.suppress(OSError):
        await reader.read(4096)
        writer.write(bytes([21, 3, 3, 0, 2, 2, 40]))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
