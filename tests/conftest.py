"""Servers once a session, a fresh migrated database and topics of its own for each test that asks."""

import asyncio
import functools
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import botocore.session
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from botocore.loaders import create_loader

import devservers
from devservers.settings import DEV_RUNS
from streams.adapters.kafka import create_topics
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.topics import Topics

SALT: Final = b"0123456789abcdef0123456789abcdef"
PARTITIONS: Final = 3
# The longest first, so that no worker is left with one of them at the end: a file stays on one worker (--dist loadfile).
LONGEST: Final = (
    "cases/test_ses_send.py",
    "scenarios/test_processes.py",
    "integration/test_sender_circuit.py",
    "scenarios/test_cluster.py",
    "acceptance/test_outages.py",
    "integration/test_relay_polling_failures.py",
    "integration/test_sender_flow.py",
    "integration/test_sender_failures.py",
    "cases/test_sns_http.py",
    "cases/test_ses_event.py",
    "acceptance/test_crash.py",
    "acceptance/test_relay_fuzz.py",
    "integration/test_sender_journal.py",
    "acceptance/test_benchmarks.py",
    "acceptance/test_relay_fuzz.py",
    "integration/test_scheduler_duties.py",
    "integration/test_relay_failures.py",
    "integration/test_relay_conformance.py",
    "integration/test_rebuild.py",
    "acceptance/test_demo.py",
    "acceptance/test_ses_disturbed.py",
    "integration/test_clear_errors.py",
    "scenarios/test_not_writable.py",
    "scenarios/test_refused_records.py",
    "integration/test_devservers_cluster.py",
    "acceptance/test_events_chaos.py",
    "integration/test_devservers_background.py",
    "integration/test_devservers_owners.py",
    "integration/test_devservers.py",
    "integration/test_recipients_streaks.py",
    "scenarios/test_tables.py",
    "properties/test_fold_postgres.py",
    "integration/test_api_disturbed.py",
    "integration/test_api_document.py",
    "integration/test_plans.py",
    "acceptance/test_events_privacy.py",
    "integration/test_events_kafka.py",
)
_numbers = itertools.count()


def pytest_configure() -> None:
    """Databases and topics by the hundred, all thrown away: in memory where there is room. kill -9 of a server loses nothing there."""
    if (place := devservers.memory_directory()) is not None:
        os.environ.setdefault(DEV_RUNS, str(place))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files, then those on real servers, then the many that take a moment."""
    tests = Path(__file__).parent
    place = {tests / name: number for number, name in enumerate(LONGEST)}
    on_servers = {item.path for item in items if item.get_closest_marker("servers")}
    items.sort(key=lambda item: place.get(item.path, len(place) + (item.path not in on_servers)))


@pytest.fixture(autouse=True)
def environment_left_alone() -> Iterator[None]:
    """What a test leaves in the environment makes another one fail, far away."""
    before = _variables()
    yield
    assert _variables() == before


def _variables() -> dict[str, str]:
    ours = ("AWS_", "MAILSTREAMS_", "HTTP", "http")
    return {name: value for name, value in os.environ.items() if name.startswith(ours)}


@pytest.fixture(scope="session", autouse=True)
def _service_models_read_once() -> Iterator[None]:
    """Every session of botocore would read megabytes of JSON again, which costs a client a tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(create_loader))
        yield


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
