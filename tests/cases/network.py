"""The network that the product under test sees: every name leads to a stand-in, every address that is not ours is refused.

Hooks of one event loop, so that whatever library connects is seen. What the runner itself does is told apart by its context.
"""

import asyncio
import contextvars
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

_IS_RUNNER: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("runner", default=False)


@contextmanager
def as_runner(is_runner: bool = True) -> Iterator[None]:
    """What is started inside connects to where it wants."""
    token = _IS_RUNNER.set(is_runner)
    try:
        yield
    finally:
        _IS_RUNNER.reset(token)


@dataclass(slots=True, kw_only=True)
class Network:
    """servers: hosts that the product may talk to, beside this machine, on the ports `allowed`. moved: ports that lead to another
    one of this machine."""

    https_port: int
    http_port: int
    servers: set[str] = field(default_factory=set)
    allowed: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @contextmanager
    def installed(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Hooks this network into the loop."""
        resolve, connect = loop.getaddrinfo, loop.sock_connect

        async def getaddrinfo(host: Any, port: Any, **options: Any) -> Any:
            known = host in self.servers or host is None or _is_address(host)
            if _IS_RUNNER.get() or known or host == "localhost":
                found = await resolve(host, port, **options)
                if host in self.servers:
                    self.servers |= {str(address[4][0]) for address in found}
                return found
            self.names.append(f"{host}:{port}")
            stand_in = self.https_port if str(port) in ("443", "https") else self.http_port
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", stand_in))]

        async def sock_connect(sock: socket.socket, address: Any) -> None:
            if not _IS_RUNNER.get() and isinstance(address, tuple):
                address = self._checked(address)
            await connect(sock, address)

        hooks: Any = loop
        hooks.getaddrinfo, hooks.sock_connect = getaddrinfo, sock_connect
        try:
            yield
        finally:
            del hooks.getaddrinfo, hooks.sock_connect

    def _checked(self, address: tuple[Any, ...]) -> tuple[Any, ...]:
        host, port = address[0], int(address[1])
        own = ipaddress.ip_address(host).is_loopback or host in self.servers
        if not own or port not in self.allowed | {self.https_port, self.http_port}:
            self.refused.append(f"{host}:{port}")
            raise ConnectionRefusedError(f"the test allows no connection to {host}:{port}")
        if port in self.moved:
            return ("127.0.0.1", self.moved[port])
        return address


def _is_address(host: Any) -> bool:
    try:
        ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host)
    except ValueError:
        return False
    return True
