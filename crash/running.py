"""Servers and a system for as long as a block lasts, with a port for the proxy before Kafka."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import devservers
from crash.control import NotWorking
from crash.system import LocalServers, System
from devservers.kafka import LocalKafka
from devservers.ports import Ports
from devservers.postgres import LocalPostgres


@asynccontextmanager
async def servers(directory: Path) -> AsyncIterator[tuple[LocalServers, int]]:
    """Own PostgreSQL and Kafka, and the port of Kafka's proxy."""
    ports = Ports(directory / "ports")
    port = ports.claim(server="the proxy of Kafka")
    settings = devservers.ServerSettings(
        kafka_proxy_port=port,
        kafka_options={"group.min.session.timeout.ms": "1000"},
        postgres_options={"checkpoint_timeout": "60s", "max_wal_size": "256MB"},
    )
    running = devservers.Servers(settings)
    try:
        await asyncio.to_thread(running.start)
        yield _local(running), port
    finally:
        await asyncio.to_thread(running.stop)
        ports.release()


def _local(running: devservers.Servers) -> LocalServers:
    postgres, kafka = running.postgres, running.kafka
    if not isinstance(postgres, LocalPostgres) or not isinstance(kafka, LocalKafka):
        raise NotWorking(
            "the harness kills its servers: unset MAILSTREAMS_POSTGRES_DSN, MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS and "
            "MAILSTREAMS_SERVERS, so that it starts its own"
        )
    return LocalServers(postgres, kafka)


@asynccontextmanager
async def system(
    started: LocalServers, kafka_port: int, *, name: str, mutation: str | None = None
) -> AsyncIterator[System]:
    """A fresh database and fresh topics on these servers. Its directory is thrown away unless `kept` was called."""
    directory = Path(tempfile.mkdtemp(prefix=f"mailstreams-{name}-"))
    made = System(
        started,
        directory=directory,
        name=f"{name}_{os.getpid()}",
        kafka_port=kafka_port,
        mutation=mutation,
    )
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
    shutil.rmtree(directory, ignore_errors=True)
