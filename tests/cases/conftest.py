"""The three runners, each with servers, topics and a loop of one module. Foreign cases are run without the runner's own tests."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiokafka.admin import AIOKafkaAdminClient

import devservers
from streams.domain.topics import Topics
from tests.cases.event_runner import Folding, run_variant
from tests.cases.http_runner import run_group
from tests.cases.loading import OWN_DATA, Group, folder, groups, nothing_to_run, read_folder
from tests.cases.network import as_runner
from tests.cases.recipients_state import RecipientsState
from tests.cases.scene import scene
from tests.cases.send_queue import SendQueue
from tests.cases.send_runner import run_variant as run_send_variant
from tests.cases.send_scene import send_scene

T = TypeVar("T")
RunHttp = Callable[[Group], tuple[list[str], list[str]]]
RunEvent = Callable[[Group], list[str]]
RunSend = Callable[[Group], list[str]]


def ignored() -> Iterator[str]:
    """A module without a case is left out, since one that has nothing to run counts as skipped."""
    files = read_folder(folder())
    for kind in ("sns_http", "ses_event", "ses_send"):
        if not groups(files, kind):
            yield f"test_{kind}.py"
    if "C25" not in {file.id for file in files}:
        yield "test_c25_old_sdk.py"
    if folder().resolve() != OWN_DATA.resolve():
        yield from ("test_runner.py", "test_send_runner.py", "test_send_parts.py", "test_loader.py")


collect_ignore = list(ignored())


def pytest_configure() -> None:
    """Before anything starts; exit code 4, since green would say that cases have passed."""
    if (told := nothing_to_run(folder(), read_folder(folder()))) is not None:
        raise pytest.UsageError(told)


@contextmanager
def on_a_loop(opened: Any) -> Iterator[tuple[asyncio.Runner, Any]]:
    """An asynchronous context manager that stays open over many runs of one loop."""
    with asyncio.Runner() as runner:
        made = runner.run(opened.__aenter__())
        try:
            yield runner, made
        finally:
            runner.run(opened.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def run_http(
    servers: devservers.Servers,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: Any,
) -> Iterator[RunHttp]:
    """Runs a group of sns_http variants: the reports of what failed, and the names of what was skipped."""
    module = request.module.__name__.rpartition(".")[2]
    topics = Topics(prefix=f"cases-http-{module}-{os.getpid()}.")
    with _database(servers, f"cases_http_{module}_{os.getpid()}", template_database) as dsn:
        opened = scene(servers, topics, tmp_path_factory.mktemp("authority"), postgres_dsn=dsn)
        with on_a_loop(opened) as (runner, made):
            yield lambda group: runner.run(run_group(made, group))


@contextmanager
def _database(servers: devservers.Servers, name: str, template: str) -> Iterator[str]:
    """A database for as long as it is needed."""
    dsn = servers.postgres.create_database(name, template=template)
    try:
        yield dsn
    finally:
        servers.postgres.drop_database(name)


@pytest.fixture(scope="module")
def run_event(
    servers: devservers.Servers,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: Any,
) -> Iterator[RunEvent]:
    """Runs a ses_event variant: the reports of the orders in which it failed."""
    module = request.module.__name__.rpartition(".")[2]
    topics = Topics(prefix=f"cases-event-{module}-{os.getpid()}.")
    with _database(servers, f"cases_{module}_{os.getpid()}", template_database) as dsn:
        opened = folding(servers, topics, tmp_path_factory.mktemp("authority"), dsn)
        with on_a_loop(opened) as (runner, made):
            yield lambda group: runner.run(run_variant(made, group))


@pytest.fixture(scope="module")
def run_send(
    servers: devservers.Servers,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: Any,
) -> Iterator[RunSend]:
    """Runs a ses_send variant: the report of what failed. The variants of all tests of the module that were selected begin
    with the first one, so that a module has to stay on one worker (--dist loadfile)."""
    mine = [item for item in request.session.items if item.module is request.module]
    selected = [item.callspec.params["group"] for item in mine if _is_of_a_group(item)]
    opened = sending(servers, template_database, tmp_path_factory.mktemp("sending"), selected)
    with on_a_loop(opened) as (runner, queue):
        yield lambda group: runner.run(queue.result(group))


def _is_of_a_group(item: Any) -> bool:
    return "group" in getattr(getattr(item, "callspec", None), "params", {})


@asynccontextmanager
async def sending(
    servers: devservers.Servers, template: str, directory: Path, groups: list[Group]
) -> AsyncIterator[SendQueue]:
    async with send_scene(servers, template, directory) as made:
        queue = SendQueue(lambda group: run_send_variant(made, group), groups)
        try:
            yield queue
        finally:
            await queue.stop()


@asynccontextmanager
async def folding(
    servers: devservers.Servers, topics: Topics, directory: Path, dsn: str
) -> AsyncIterator[Folding]:
    async with scene(servers, topics, directory, postgres_dsn=dsn) as made:
        state = RecipientsState(dsn)
        admin = AIOKafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap_servers)
        with as_runner():
            await state.start()
            await admin.start()
        try:
            yield Folding(scene=made, state=state, admin=admin)
        finally:
            await state.stop()
            await admin.close()
