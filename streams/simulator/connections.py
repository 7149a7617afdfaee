"""Ends of connections that no well-behaved service shows."""

import asyncio
import os
import socket
import struct
from typing import Any, NoReturn

from aiohttp import web

from streams.simulator.rest_answers import success

_LINGER_ZERO = struct.pack("ii", 1, 0)


async def never_answer() -> NoReturn:
    """Wait until the handler is cancelled: the caller has gone, or the server stops."""
    while True:
        await asyncio.Event().wait()


async def close_connection(request: web.BaseRequest) -> NoReturn:
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.close()
    await never_answer()


async def reset_connection(request: web.BaseRequest) -> NoReturn:
    """End the connection with a TCP reset."""
    if request.transport is not None:
        _linger_zero(request.transport)
        request.transport.abort()
    await never_answer()


async def answer_half(request: web.BaseRequest, document: dict[str, Any]) -> NoReturn:
    """Send the head and half of the body, then close."""
    whole = success(document)
    body = whole.body if isinstance(whole.body, bytes) else b""
    answer = web.StreamResponse(headers=whole.headers)
    answer.content_length = len(body)
    await answer.prepare(request)
    await answer.write(body[: len(body) // 2])
    await close_connection(request)


def _linger_zero(transport: asyncio.Transport) -> None:
    original = transport.get_extra_info("socket")
    # A duplicate, since event loops hand out sockets that refuse options.
    with socket.socket(fileno=os.dup(original.fileno())) as duplicate:
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
