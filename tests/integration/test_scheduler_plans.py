"""What the scheduler looks up in the outbox goes by ids, however many rows are unsettled."""

import json
from typing import Any

import pytest

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from tests.integration.outbox_rows import execute

pytestmark = pytest.mark.servers


@pytest.fixture
async def full(database: Database) -> Database:
    """12,000 rows, a third of them unsettled."""
    await execute(
        database,
        """WITH made AS (
             INSERT INTO email_outbox (recipient, sender, subject, text)
             SELECT 'user' || n || '@example.com', 'sender@example.com', 'Hello', 'Hi' FROM generate_series(1, 12000) AS n
             RETURNING id)
           INSERT INTO email_unsettled (attempt_id, outbox_id, since)
           SELECT uuid_v7(), id, clock_timestamp() - interval '25 h' FROM made LIMIT 4000""",
    )
    for table in ("email_outbox", "email_unsettled"):
        await execute(database, f"ANALYZE {table}")
    return database


async def plan(database: Database, name: str) -> Any:
    async with database.connection() as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        statement = await connection.prepare(query(name))
        nulls = ", ".join(["NULL"] * len(statement.get_parameters()))
        await connection.execute(f"PREPARE planned AS {query(name)}")
        found = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE planned ({nulls})")
        await connection.execute("DEALLOCATE planned")
    return json.loads(found)


def scans(tree: Any) -> list[dict[str, Any]]:
    """The nodes that read the outbox."""
    if isinstance(tree, list):
        return [node for each in tree for node in scans(each)]
    if not isinstance(tree, dict):
        return []
    own = tree.get("Relation Name") == "email_outbox" and tree["Node Type"] != "ModifyTable"
    below = [node for value in tree.values() for node in scans(value)]
    return [tree, *below] if own else below


@pytest.mark.parametrize(
    "name", ["measure_backlog", "hold_ambiguous", "settle_ambiguous", "resend_ambiguous"]
)
async def test_the_outbox_is_read_by_id_only(full: Database, name: str) -> None:
    found = scans(await plan(full, name))
    assert found
    for node in found:
        assert "Index Cond" in node, node
