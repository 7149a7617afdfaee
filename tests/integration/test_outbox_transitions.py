"""The database itself lets a row go the legal ways and no other, whoever writes."""

from itertools import product
from uuid import UUID

import asyncpg
import pytest

from streams.adapters.postgres import Connection, Database
from streams.domain.states import State, is_legal
from tests.integration.outbox_rows import make_row
from tests.integration.sender_rows import attempt_id, insert

pytestmark = pytest.mark.servers


async def _goes(connection: Connection, before: State, after: State) -> bool:
    """Whether a row of the one state may be put into the other; the state before is set past every trigger."""
    id_ = await insert(connection)
    await connection.execute("SET session_replication_role = replica")
    await _set(connection, id_, before)
    await connection.execute("RESET session_replication_role")
    try:
        await _set(connection, id_, after)
    except asyncpg.CheckViolationError as refused:
        return f"from {before} to {after}" not in str(refused)
    assert await connection.fetchval("SELECT state FROM email_outbox WHERE id = $1", id_) == after
    return True


async def _set(connection: Connection, id_: UUID, state: State) -> None:
    await connection.execute(
        "UPDATE email_outbox SET state = $2, attempt_id = $3 WHERE id = $1",
        id_,
        state.value,
        attempt_id() if state is State.SENDING else None,
    )


async def test_every_way_between_two_states_is_open_or_refused_as_the_table_says(
    database: Database,
) -> None:
    async with database.connection() as connection:
        found = {
            (before, after): await _goes(connection, before, after)
            for before, after in product(State, State)
        }
    assert found == {pair: is_legal(*pair) for pair in found}


async def test_a_token_stands_in_the_row_while_a_call_is_under_way_and_only_then(
    database: Database,
) -> None:
    row = await make_row(database, "sending")
    async with database.connection() as connection:
        for change in ("attempt_id = NULL", "state = 'submitted'"):
            with pytest.raises(asyncpg.CheckViolationError) as refused:
                await connection.execute(f"UPDATE email_outbox SET {change} WHERE id = $1", row.id)
            assert refused.value.constraint_name == "attempt_id_only_while_sending"
