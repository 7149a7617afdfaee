"""Statements of the sender that are stopped between their snapshot and their locks, and connections that wait for locks."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from streams.adapters.outbox_store import _columns
from streams.adapters.postgres import Connection, Database
from streams.adapters.queries import query
from streams.domain.attempts import ClaimRequest, Outcome
from tests.integration.sender_rows import LEASE_S

DEADLINE_S: Final = 60.0
_PLACE: Final = "FROM unnest($1::uuid[],"
_GATE: Final = 4711


@asynccontextmanager
async def gate(database: Database) -> AsyncIterator[Connection]:
    """What was halted stays so until the block ends."""
    async with database.connection() as keeper:
        await keeper.execute("SELECT pg_advisory_lock($1)", _GATE)
        try:
            yield keeper
        finally:
            await keeper.execute("SELECT pg_advisory_unlock($1)", _GATE)


def _halted(name: str) -> str:
    """The statement, with a stop after its snapshot is taken and before it reads or locks anything."""
    text = query(name)
    assert text.count(_PLACE) == 1, f"{name} opens its rows in another way: stop it there"
    return text.replace(
        _PLACE, f"FROM unnest((SELECT $1::uuid[] FROM pg_advisory_xact_lock({_GATE})),"
    )


async def halted_claim(database: Database, requests: Sequence[ClaimRequest]) -> dict[Any, str]:
    """The verdicts of a claim that waits at the gate."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            _halted("claim_emails"),
            [r.id for r in requests],
            [r.attempt_id for r in requests],
            [r.xid for r in requests],
            LEASE_S,
        )
    return {row["id"]: row["verdict"] for row in rows}


async def halted_outcomes(database: Database, outcomes: Sequence[Outcome]) -> dict[Any, str]:
    """What recording did with each attempt, after it waited at the gate."""
    async with database.connection() as connection:
        rows = await connection.fetch(_halted("record_outcomes"), *_columns(outcomes), 3)
    return {row["attempt_id"]: row["recorded"] for row in rows}


async def until_halted(watcher: Connection, number: int = 1) -> None:
    """Until so many statements wait at the gate."""
    await _until(
        watcher,
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())",
        number,
    )


async def until_waiting(watcher: Connection, number: int = 1) -> None:
    """Until so many connections of this database wait for what another transaction holds."""
    await _until(
        watcher,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0",
        number,
    )


async def _until(watcher: Connection, count: str, number: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while await watcher.fetchval(count) < number:
        assert time.monotonic() < deadline, f"fewer than {number} wait: {count}"
        await asyncio.sleep(0.02)
