"""What a sender reads and writes PostgreSQL through, on the database of the test."""

from collections.abc import AsyncIterator

import pytest

from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Database


@pytest.fixture
async def sender_database(database_dsn: str) -> AsyncIterator[Database]:
    """The pool as a sender has it."""
    opened = Database(database_dsn, pool_size=8, timeout_s=60, name="test", server_settings=PLANNER)
    async with opened:
        yield opened


@pytest.fixture
def store(sender_database: Database) -> OutboxStore:
    """Three attempts at most."""
    return OutboxStore(sender_database, max_attempts=3)
