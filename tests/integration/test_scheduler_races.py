"""The scheduler's statements when a row changes between their snapshot and their lock."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.adapters.schedule_store import PROOF, ScheduleStore
from tests.integration.outbox_rows import Row, _claim, _end, execute, fetch, make_row

pytestmark = pytest.mark.servers

GATE = 7001


@asynccontextmanager
async def held_at_gate(
    database: Database, sql: str, *args: Any
) -> AsyncIterator[asyncio.Task[Any]]:
    """Runs the statement up to its gate(): its snapshot is taken, no row is locked. It goes on where the block ends."""
    await execute(
        database,
        f"""CREATE FUNCTION gate(value anyelement) RETURNS anyelement LANGUAGE plpgsql VOLATILE AS $$
            BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN value; END $$""",
    )
    async with database.transaction() as connection:
        await connection.execute(f"SELECT pg_advisory_xact_lock({GATE})")
        statement = asyncio.create_task(fetch(database, sql, *args))
        deadline = time.monotonic() + 20
        while not await execute(
            database,
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted)",
            GATE,
        ):
            assert not statement.done(), statement.result()
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        yield statement
    await statement


def gated(name: str, expression: str) -> str:
    """The query with its gate at this expression, which it needs before it locks anything."""
    text = query(name)
    assert expression in text
    return text.replace(expression, f"gate({expression})")


async def refuse(database: Database, row: Row) -> None:
    """What a sender writes that comes back after its lease."""
    await execute(
        database, "UPDATE email_attempt SET outcome = 'retry' WHERE id = $1", row.attempt_id
    )


async def call_again(database: Database, row: Row) -> UUID:
    """A settled row is claimed once more, and that call ends unknown too."""
    token = await _claim(database, row.id, None, 60.0)
    again = Row(id=row.id, attempt_id=token, recipient=row.recipient)
    await _end(database, again, state="ambiguous", since="0 s")
    await execute(database, "UPDATE email_outbox SET changed = clock_timestamp()")
    return token


async def settle(database: Database, row: Row) -> None:
    assert (await ScheduleStore(database).settle([row.id])).refused == 1


async def state_and_unsettled(database: Database) -> tuple[Any, list[dict[str, Any]]]:
    return (
        await execute(database, "SELECT state FROM email_outbox"),
        await fetch(database, "SELECT attempt_id, held FROM email_unsettled"),
    )


async def test_a_refusal_does_not_free_a_row_that_was_called_again_meanwhile(
    database: Database,
) -> None:
    row = await make_row(database, "ambiguous")
    await refuse(database, row)
    sql = gated("settle_ambiguous", "$1::uuid[]")
    async with held_at_gate(database, sql, [row.id], PROOF) as statement:
        await settle(database, row)
        token = await call_again(database, row)
    (settled,) = statement.result()
    assert settled["refused"] == 0
    expected = [{"attempt_id": token, "held": None}]
    assert await state_and_unsettled(database) == ("ambiguous", expected)
    assert await fetch(database, "SELECT * FROM email_due") == []


async def test_a_row_that_nobody_changes_is_settled_behind_the_gate(database: Database) -> None:
    row = await make_row(database, "ambiguous")
    await refuse(database, row)
    sql = gated("settle_ambiguous", "$1::uuid[]")
    async with held_at_gate(database, sql, [row.id], PROOF):
        pass
    assert await state_and_unsettled(database) == ("pending", [])


async def test_a_person_is_not_asked_about_a_call_that_is_young(database: Database) -> None:
    row = await make_row(database, "ambiguous", since="25 h")
    sql = gated("hold_ambiguous", "now()")
    async with held_at_gate(database, sql, timedelta(hours=24), 10) as statement:
        await refuse(database, row)
        await settle(database, row)
        token = await call_again(database, row)
    assert statement.result() == [{"count": 0}]
    expected = [{"attempt_id": token, "held": None}]
    assert await state_and_unsettled(database) == ("ambiguous", expected)
    assert await fetch(database, "SELECT * FROM dead_letter") == []


async def test_the_lease_of_an_ended_call_does_not_end_the_next_one(database: Database) -> None:
    row = await make_row(database, "sending", lease_s=-1)
    async with held_at_gate(database, gated("expire_leases", "now()"), 10) as statement:
        await _end(database, row, state="pending", since="0 s")
        token = await _claim(database, row.id, None, 60.0)
    assert statement.result() == []
    assert await fetch(database, "SELECT state, attempt_id FROM email_outbox") == [
        {"state": "sending", "attempt_id": token}
    ]
    assert await fetch(database, "SELECT attempt_id FROM email_lease") == [{"attempt_id": token}]


async def test_a_wake_up_of_a_row_that_was_called_meanwhile_is_no_pointer(
    database: Database,
) -> None:
    row = await make_row(database)
    await execute(
        database,
        "INSERT INTO email_due (id, due, tenant, lane, why) VALUES ($1, now() - interval '1 s', 'shop', 'bulk', 'retry')",
        row.id,
    )
    async with held_at_gate(database, gated("take_due", "now()"), 10, PROOF) as statement:
        await call_again(database, row)
    assert statement.result()[0]["pointers"] == 0
    assert await fetch(database, "SELECT * FROM outbox_feed") == []
