"""The whole system as real processes."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import devservers
from demo.system import STAGES, System
from streams.domain.topics import Topics

_numbers = itertools.count()


@contextmanager
def system_on(
    servers: devservers.Servers,
    directory: Path,
    stages: Sequence[str] = STAGES,
    settings: Mapping[str, str] | None = None,
) -> Iterator[System]:
    """Every stage and the simulator on a fresh database and fresh topics."""
    name = f"acceptance_{os.getpid()}_{next(_numbers)}"
    dsn = servers.postgres.create_database(name)
    try:
        with System(
            servers,
            dsn=dsn,
            directory=directory,
            topic_prefix=f"{name}.",
            settings=settings,
            stages=stages,
        ) as system:
            yield system
    finally:
        servers.postgres.drop_database(name)


@pytest.fixture(scope="module")
def system(
    servers: devservers.Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A running system that the tests of a module share; nobody stops its servers."""
    with system_on(servers, tmp_path_factory.mktemp("system")) as running:
        yield running


@pytest.fixture
def application(system: System) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection of an application, each statement its own transaction."""
    with psycopg.connect(system.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def topics_of(system: System) -> Topics:
    """The system's topic names."""
    return Topics(prefix=system.topic_prefix)


Connection = psycopg.Connection[tuple[object, ...]]


def enqueue(connection: Connection, recipient: str, **arguments: object) -> str:
    """enqueue_email with a plain body unless a template is named; the id."""
    given = {"recipient": recipient, "sender": "mail@example.com", **arguments}
    if "template" not in given:
        given = {"subject": "Hello", "body_text": "Hi", **given}
    call = ", ".join(f"{name} => %({name})s" for name in given)
    row = connection.execute(f"SELECT enqueue_email({call})", given).fetchone()
    assert row is not None
    return str(row[0])


def state_of(connection: Connection, outbox_id: str) -> tuple[str, str | None]:
    """State and reason."""
    row = connection.execute(
        "SELECT state, reason FROM email_outbox WHERE id = %s", (outbox_id,)
    ).fetchone()
    assert row is not None
    return str(row[0]), None if row[1] is None else str(row[1])


def until_state(
    system: System, connection: Connection, outbox_id: str, state: str, timeout_s: float = 30
) -> None:
    """Waits for the state; fails with the one there is."""
    reached: Callable[[], bool] = lambda: state_of(connection, outbox_id)[0] == state  # noqa: E731
    system.wait_for(reached, f"{outbox_id} to be {state}", timeout_s=timeout_s)
