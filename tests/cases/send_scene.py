"""What all variants of kind ses_send share, and the stages of one of them on a database and topics of its own."""

import asyncio
import contextlib
import itertools
import logging
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient

import devservers
from streams import wiring
from streams.adapters.kafka import create_topics
from streams.adapters.outbox_store import PLANNER
from streams.adapters.postgres import Database
from streams.domain.topics import Topics
from streams.runtime.lifecycle import Stage
from streams.runtime.logs import JsonLines
from streams.runtime.settings import Settings
from tests.cases.envelopes import TOPIC
from tests.cases.internet import Authority
from tests.cases.loading import Variant
from tests.cases.observation import captured
from tests.cases.scene import KEY, trusting
from tests.cases.ses_network import Route, installed, routed
from tests.cases.ses_server import ServerThread
from tests.conftest import SALT
from tests.integration.outbox_rows import execute

READY_WITHIN_S: Final = 90.0
REGION: Final = "eu-central-1"
_LINES: Final[ContextVar["list[str] | None"]] = ContextVar("lines", default=None)


class LinesByContext(logging.Handler):
    """Gives each line of a log to the variant whose stages wrote it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonLines("cases"))

    def emit(self, record: logging.LogRecord) -> None:
        lines = _LINES.get()
        if lines is not None:
            lines.append(self.format(record))


@dataclass(slots=True, kw_only=True)
class SendScene:
    """Servers, a fake's thread, and the certificate that its callers trust."""

    servers: devservers.Servers
    template: str
    directory: Path
    authority: Authority
    thread: ServerThread
    admin: AIOKafkaAdminClient
    trial: "asyncpg.Connection[asyncpg.Record]"
    """To a database in which inserts are tried, and rolled back."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    copying: asyncio.Lock = field(default_factory=asyncio.Lock)
    trying: asyncio.Lock = field(default_factory=asyncio.Lock)

    def server_context(self) -> ssl.SSLContext:
        return self.authority.server_context()

    @property
    def outside(self) -> set[str]:
        """Hosts of the servers that are not this machine."""
        found = {urlsplit(self.servers.postgres.dsn).hostname or "localhost"}
        return found | {
            address.rpartition(":")[0]
            for address in self.servers.kafka.bootstrap_servers.split(",")
        }


@asynccontextmanager
async def send_scene(
    servers: devservers.Servers, template: str, directory: Path
) -> AsyncIterator[SendScene]:
    authority = Authority(directory)
    thread = ServerThread()
    handler = LinesByContext()
    admin = AIOKafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap_servers)
    trial = f"cases_send_{os.getpid()}_trial"
    with (
        pytest.MonkeyPatch.context() as patch,
        captured(),
        trusting(authority.path),
        installed(asyncio.get_running_loop()),
    ):
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        for name in ("AWS_ENDPOINT_URL_SESV2", "AWS_PROFILE", "AWS_ROLE_ARN"):
            patch.delenv(name, raising=False)
        for name in ("HTTPS_PROXY", "ALL_PROXY"):
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        logging.getLogger().addHandler(handler)
        thread.start()
        await admin.start()
        dsn = servers.postgres.create_database(trial, template=template)
        connection = await asyncpg.connect(dsn)
        try:
            yield SendScene(
                servers=servers,
                template=template,
                directory=directory,
                authority=authority,
                thread=thread,
                admin=admin,
                trial=connection,
            )
        finally:
            await connection.close()
            servers.postgres.drop_database(trial)
            await admin.close()
            thread.stop()
            logging.getLogger().removeHandler(handler)


@dataclass(slots=True, kw_only=True)
class Place:
    """Database, topics and slot of one variant; the lines of its log."""

    scene: SendScene
    number: int
    dsn: str
    topics: Topics
    settings: Settings
    database: Database
    lines: list[str] = field(default_factory=list)

    @contextmanager
    def context(self, route: Route | None = None) -> Iterator[None]:
        """What is started inside writes its log here, and goes that way to Amazon."""
        token = _LINES.set(self.lines)
        try:
            with routed(route) if route is not None else contextlib.nullcontext():
                yield
        finally:
            _LINES.reset(token)


@asynccontextmanager
async def place(scene: SendScene, *, partitions: int, lease_s: float) -> AsyncIterator[Place]:
    """Fresh state, and none of it afterwards."""
    number = next(scene.numbers)
    name = f"cases_send_{os.getpid()}_{number}"
    postgres = scene.servers.postgres
    async with scene.copying:
        dsn = await asyncio.to_thread(postgres.create_database, name, template=scene.template)
    topics = Topics(prefix=f"cases-send-{os.getpid()}-{number}.")
    settings = Settings(
        postgres_dsn=dsn,
        postgres_pool_size=3,
        kafka_bootstrap_servers=scene.servers.kafka.bootstrap_servers,
        topic_prefix=topics.prefix,
        partitions=partitions,
        recipient_salt=SALT.decode(),
        unreadable_key=KEY.decode(),
        relay_slot=name,
        sender_lease_s=lease_s,
        # A connection to this machine takes long only where the machine is busy, which is no fault of the row.
        sender_connect_timeout_s=15.0,
        scheduler_interval_s=0.2,
        provider_list=False,
        sns_topics=(TOPIC,),
        sns_certificate_source=None,
        events_port=0,
    )
    database = Database(dsn, pool_size=2, timeout_s=60, name="cases", server_settings=PLANNER)
    try:
        await create_topics(
            settings.kafka_bootstrap_servers, topics, partitions=partitions, replication_factor=-1
        )
        async with database:
            await execute(
                database, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')::text", name
            )
            yield Place(
                scene=scene,
                number=number,
                dsn=dsn,
                topics=topics,
                settings=settings,
                database=database,
            )
    finally:
        await scene.admin.delete_topics(list(topics.configurations()))
        async with scene.copying:
            await asyncio.to_thread(postgres.drop_database, name)


@dataclass(slots=True, kw_only=True)
class Stages:
    """Stages of the product in this process, as the product wires them."""

    place: Place
    _running: list[tuple[Stage, asyncio.Task[None]]] = field(default_factory=list)

    async def start(self, names: Sequence[str], route: Route) -> list[Stage]:
        made = []
        with self.place.context(route):
            for name in names:
                stage = wiring.BUILDERS[name](self.place.settings)
                await stage.start()
                self._running.append((stage, asyncio.create_task(stage.run())))
                made.append(stage)
        return made

    @property
    def ended(self) -> list[str]:
        """Those that should run and do not."""
        return [stage.name for stage, run in self._running if run.done()]

    async def stop(self) -> None:
        """The last one first."""
        with self.place.context():
            for stage, run in reversed(self._running):
                await stage.stop()
                # One that had to give up a server ends cancelled.
                await asyncio.wait([run])
                if not run.cancelled() and (error := run.exception()) is not None:
                    raise error
        self._running.clear()


def needs_processes(variant: Variant) -> bool:
    """Whether its senders have to be processes: several, one that is killed, or one whose timing is judged."""
    timed = "enforced" in variant.get("limits", {}) or variant["expect"].get("windows")
    return variant.get("senders", 1) > 1 or "disturb" in variant or bool(timed)
