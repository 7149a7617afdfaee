"""Free loopback ports that stay ours while a server is down between stop and start."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from pathlib import Path

from devservers.errors import PortBusy

LOWEST, HIGHEST = 20_000, 32_000


class Ports:
    """Hands out ports below the range of outgoing connections, each held by a lock in the cache.

    A lock ends with this process, and with each that inherited `locks`.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.locks: list[int] = []

    def claim(self, port: int = 0, *, server: str = "a server") -> int:
        """The port that was asked for, else a free one; PortBusy names `server`."""
        if port:
            if not (is_free(port) and self._lock(port)):
                raise PortBusy(
                    f"Port {port} on 127.0.0.1 is in use: end what listens there, or give {server} another port."
                )
            return port
        highest = min(HIGHEST, _lowest_ephemeral() - 1)
        for _ in range(200):
            candidate = random.randint(min(LOWEST, highest - 2000), highest)  # noqa: S311
            if self._lock(candidate) and is_free(candidate):
                return candidate
        raise PortBusy(
            "No free port was found on 127.0.0.1: end some of the programs that listen there."
        )

    def release(self) -> None:
        """Give all of them up."""
        while self.locks:
            os.close(self.locks.pop())

    def _lock(self, port: int) -> bool:
        descriptor = os.open(self._directory / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self.locks.append(descriptor)
        return True


def is_free(port: int) -> bool:
    """Whether a server could listen on that port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            if error.errno == errno.EACCES:
                raise PortBusy(
                    f"Port {port} may not be used by this user: choose one above 1023."
                ) from error
            raise
    return True


def _lowest_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 49_152
