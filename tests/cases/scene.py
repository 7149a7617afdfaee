"""The product under test between real servers: its stages as the product wires them, Kafka behind a gate, and a stand-in for the rest of the world."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp.connector
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from cryptography.fernet import Fernet

import devservers
from streams import wiring
from streams.adapters import kafka_group
from streams.adapters.kafka import create_topics
from streams.domain.topics import Topics, unreadable
from streams.runtime.lifecycle import Stage
from streams.runtime.settings import Settings
from tests.cases.envelopes import TOPIC
from tests.cases.gate import Gate
from tests.cases.internet import Internet
from tests.cases.network import Network, as_runner
from tests.cases.observation import Logs, captured
from tests.cases.topic_reader import TopicReader
from tests.conftest import SALT

PARTITIONS: Final = 3
KEY: Final = Fernet.generate_key()


@dataclass(slots=True, kw_only=True)
class Running:
    """Stages that run, the endpoint first."""

    stages: Sequence[Stage]
    tasks: Sequence[asyncio.Task[None]]

    @property
    def address(self) -> str:
        endpoint: Any = self.stages[0]
        return str(endpoint.address)

    async def stop(self) -> None:
        with as_runner(False):
            for stage in self.stages:
                await stage.stop()
            await asyncio.gather(*self.tasks)


@dataclass(slots=True, kw_only=True)
class Scene:
    """What all cases of one kind share. Every run starts stages of its own."""

    bootstrap_servers: str
    topics: Topics
    internet: Internet
    network: Network
    gate: Gate
    reader: TopicReader
    logs: Logs
    postgres_dsn: str | None = None

    @property
    def unreadable(self) -> str:
        return unreadable(self.topics.delivery_events)

    @property
    def has_basic_auth(self) -> bool:
        return "events_basic_auth" in Settings.model_fields

    def settings(self, **changes: Any) -> Settings:
        given: dict[str, Any] = {
            "kafka_bootstrap_servers": self.bootstrap_servers,
            "topic_prefix": self.topics.prefix,
            "recipient_salt": SALT.decode(),
            "unreadable_key": KEY.decode(),
            "sns_topics": (TOPIC,),
            "sns_certificate_source": None,
            "events_port": 0,
        }
        if self.postgres_dsn is not None:
            given["postgres_dsn"] = self.postgres_dsn
        return Settings(**(given | changes))

    async def serve(self, settings: Settings, *, recipients: bool = False) -> Running:
        """Starts the endpoint, and the fold where it is wanted, on fresh state."""
        stages = [wiring.events(settings)]
        if recipients:
            stages.append(wiring.recipients(settings))
        with as_runner(False):
            for stage in stages:
                await stage.start()
            return Running(stages=stages, tasks=[asyncio.create_task(s.run()) for s in stages])


@asynccontextmanager
async def scene(
    servers: devservers.Servers, topics: Topics, directory: Path, *, postgres_dsn: str | None = None
) -> AsyncIterator[Scene]:
    """Starts what is shared, hooks the loop, and takes all of it away again."""
    bootstrap_servers = servers.kafka.bootstrap_servers
    host, port = bootstrap_servers.split(",")[0].rsplit(":", 1)
    internet, gate = Internet(directory), Gate((host, int(port)))
    reader = TopicReader(
        bootstrap_servers,
        {topics.delivery_events: PARTITIONS, unreadable(topics.delivery_events): 1},
    )
    with captured() as logs, as_runner(), trusting(internet.trust):
        await internet.start()
        await gate.start()
        network = Network(https_port=internet.https_port, http_port=internet.http_port)
        network.moved[int(port)] = gate.port
        network.servers.add(host)
        network.allowed |= {int(port), gate.port}
        if postgres_dsn is not None:
            database = urlsplit(postgres_dsn)
            network.servers.add(database.hostname or "localhost")
            network.allowed.add(database.port or 5432)
        with network.installed(asyncio.get_running_loop()):
            await create_topics(
                bootstrap_servers, topics, partitions=PARTITIONS, replication_factor=-1
            )
            await reader.start()
            try:
                yield Scene(
                    bootstrap_servers=bootstrap_servers,
                    topics=topics,
                    internet=internet,
                    network=network,
                    gate=gate,
                    reader=reader,
                    logs=logs,
                    postgres_dsn=postgres_dsn,
                )
            finally:
                await reader.stop()
                await deleted(bootstrap_servers, topics)
                await gate.stop()
                await internet.stop()


async def deleted(bootstrap_servers: str, topics: Topics) -> None:
    """The servers may be somebody's who keeps them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics(list(topics.configurations()))
    finally:
        await admin.close()


class trusting:  # noqa: N801 a context manager
    """The product's clients take the certificates of the stand-in and find credentials that are nobody's, and its stages stop soon."""

    def __init__(self, authority: Path) -> None:
        self._authority = authority
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        given = {
            "SSL_CERT_FILE": str(self._authority),
            "AWS_CA_BUNDLE": str(self._authority),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in given.items():
            self._patch.setenv(name, value)
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SNS", "AWS_SESSION_TOKEN"):
            self._patch.delenv(name, raising=False)
        # A stage that waits shorter for records stops sooner.
        self._patch.setattr(kafka_group, "POLL_S", 0.05)
        # aiohttp makes its context when it is imported, before SSL_CERT_FILE is set.
        context = ssl.create_default_context(cafile=str(self._authority))
        context.set_alpn_protocols(("http/1.1",))
        self._patch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", context)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
