"""Servers once a session, a fresh migrated database and topics of its own for each test that asks."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
from aiokafka.admin import AIOKafkaAdminClient

import devservers
from devservers.settings import DEV_RUNS
from streams.adapters.kafka import create_topics
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.topics import Topics

SALT: Final = b"0123456789abcdef0123456789abcdef"
PARTITIONS: Final = 3
_numbers = itertools.count()


def pytest_configure() -> None:
    """Databases and topics by the hundred, all thrown away: in memory where there is room. kill -9 of a server loses nothing there."""
    if (place := devservers.memory_directory()) is not None:
        os.environ.setdefault(DEV_RUNS, str(place))


@pytest.fixture(scope="session")
def servers() -> Iterator[devservers.Servers]:
    """PostgreSQL and Kafka for the whole session; nobody stops them. Addresses in the environment win."""
    with devservers.running() as running:
        yield running


@pytest.fixture(scope="module")
def own_servers() -> Iterator[devservers.Servers]:
    """PostgreSQL and Kafka of this module alone, for tests that stop, kill and freeze them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POSTGRES_DSN", "KAFKA_BOOTSTRAP_SERVERS", "SERVERS"):
            patch.delenv(f"MAILSTREAMS_{name}", raising=False)
        with devservers.running() as running:
            yield running


@pytest.fixture(scope="session")
def template_database(servers: devservers.Servers) -> Iterator[str]:
    """A migrated database that the tests' databases are copies of."""
    name = f"template_{os.getpid()}"
    dsn = servers.postgres.create_database(name)

    async def prepare() -> None:
        async with Database(dsn, pool_size=2, timeout_s=30, name="template") as database:
            await migrate(database, salt=SALT, slot=None)

    asyncio.run(prepare())
    yield name
    servers.postgres.drop_database(name)


@pytest.fixture
def database_dsn(servers: devservers.Servers, template_database: str) -> Iterator[str]:
    """The URL of a fresh migrated database, without a replication slot."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield servers.postgres.create_database(name, template=template_database)
    servers.postgres.drop_database(name)


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """A pool on a fresh migrated database."""
    async with Database(database_dsn, pool_size=8, timeout_s=20, name="test") as opened:
        yield opened


@pytest.fixture
async def topics(servers: devservers.Servers) -> AsyncIterator[Topics]:
    """The topics of one test, empty, three partitions each; gone afterwards."""
    made = Topics(prefix=f"t{os.getpid()}-{next(_numbers)}.")
    bootstrap_servers = servers.kafka.bootstrap_servers
    await create_topics(bootstrap_servers, made, partitions=PARTITIONS, replication_factor=-1)
    yield made
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics(list(made.configurations()))
    finally:
        await admin.close()
