"""Where the product's calls to Amazon go: to the fake of the variant whose stages make them, told apart by context.

Everything else outside this machine is refused, and remembered.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

HTTPS: Final = 443
SES: Final = "email.eu-central-1.amazonaws.com"
SNS: Final = "sns.eu-central-1.amazonaws.com"


@dataclass(slots=True, kw_only=True)
class Route:
    """The way of one stage. port_for_call: the port of the next connection, or None to refuse it. servers: hosts outside this
    machine that PostgreSQL and Kafka are on."""

    port_for_call: Callable[[], Awaitable[int | None]]
    servers: set[str] = field(default_factory=set)
    hosts: frozenset[str] = frozenset({SES, SNS})
    refused: list[str] = field(default_factory=list)


ROUTE: Final[ContextVar[Route | None]] = ContextVar("route", default=None)


@contextmanager
def routed(route: Route) -> Iterator[None]:
    """What is started inside goes this way."""
    token = ROUTE.set(route)
    try:
        yield
    finally:
        ROUTE.reset(token)


@contextmanager
def installed(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Hooks the ways into the loop; what has none connects to where it wants."""
    resolve, connect = loop.getaddrinfo, loop.sock_connect

    async def getaddrinfo(host: Any, port: Any, **options: Any) -> Any:
        route = ROUTE.get()
        if route is None or _is_here(host):
            return await resolve(host, port, **options)
        if host in route.servers:
            found = await resolve(host, port, **options)
            route.servers |= {str(address[4][0]) for address in found}
            return found
        if str(host) not in route.hosts or str(port) not in (str(HTTPS), "https"):
            route.refused.append(f"{host}:{port}")
            raise socket.gaierror(socket.EAI_NONAME, f"the test knows no host {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", HTTPS))]

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        route = ROUTE.get()
        if route is not None and isinstance(address, tuple):
            address = await _led(route, address)
        await connect(sock, address)

    hooks: Any = loop
    hooks.getaddrinfo, hooks.sock_connect = getaddrinfo, sock_connect
    try:
        yield
    finally:
        del hooks.getaddrinfo, hooks.sock_connect


async def _led(route: Route, address: tuple[Any, ...]) -> tuple[Any, ...]:
    if not _is_here(address[0]):
        if address[0] in route.servers:
            return address
        route.refused.append(f"{address[0]}:{address[1]}")
        raise ConnectionRefusedError(f"the test allows no connection to {address[0]}")
    if int(address[1]) != HTTPS:
        return address
    port = await route.port_for_call()
    if port is None:
        raise ConnectionRefusedError("the case says: refuse-connection")
    return ("127.0.0.1", port)


def _is_here(host: Any) -> bool:
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host).is_loopback
    except ValueError:
        return False
