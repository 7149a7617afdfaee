"""Servers for the length of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from devservers.containers import running_in_containers
from devservers.servers import Servers
from devservers.settings import Kind, ServerSettings, kind_of


@contextmanager
def running(settings: ServerSettings | None = None) -> Iterator[Servers]:
    """The servers while the block runs: given addresses, else local ones or, if asked for, containers."""
    if kind_of(os.environ) is Kind.TESTCONTAINERS:
        with running_in_containers(settings) as servers:
            yield servers
        return
    servers = Servers(settings or ServerSettings())
    servers.start()
    try:
        yield servers
    finally:
        servers.stop()
