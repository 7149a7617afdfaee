"""Every query of the tables that grow with the mail reads some rows by an index, however full they are.

PLAN_ROWS=10000000 is the long form: the tables are filled with so many messages, and the times are told.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

import devservers
from streams.adapters.facts_store import PLANNER as FOLDING
from streams.adapters.outbox_store import PLANNER as SENDING
from streams.adapters.postgres import Connection, Database
from streams.adapters.queries import query
from tests.integration.plan_queries import TESTED
from tests.integration.plan_rows import LARGE, ROWS, fill

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(36_000 if "PLAN_ROWS" in os.environ else 300),
]

ADAPTERS: Final = Path(__file__).parents[2] / "streams" / "adapters"
# As many as the largest batch or page asks for, with room for what is looked at beside it.
MOST_ROWS: Final = 6_000
SOME: Final = 20
# They go on from where a duty stands.
WALKS: Final = ("sweep_pending", "purge_contents")


@pytest.fixture(scope="module")
def full_dsn(servers: devservers.Servers, template_database: str) -> Iterator[str]:
    name = f"plans_{os.getpid()}"
    yield servers.postgres.create_database(name, template=template_database)
    servers.postgres.drop_database(name)


async def test_no_query_reads_a_table_that_grows_from_one_end_to_the_other(full_dsn: str) -> None:
    filling = Database(full_dsn, pool_size=1, timeout_s=36_000, name="test")
    async with filling, filling.connection() as connection:
        await fill(connection)
    faults: list[str] = []
    told: dict[str, float | None] = {}
    for name in TESTED:
        async with opened(full_dsn, name) as database, database.connection() as connection:
            found = await explained(connection, name)
        told[name] = found.get("Execution Time")
        faults += [f"{name}: {fault}" for fault in wrong(found["Plan"])]
    if "PLAN_ROWS" in os.environ:
        print(json.dumps({"rows": ROWS, "ms": told}))  # noqa: T201 the long form is run for it
    assert faults == []


def opened(dsn: str, name: str) -> Database:
    """A pool as the stage has it that runs the query."""
    settings: dict[str, str] = {}
    for file in ADAPTERS.glob("*.py"):
        if f'"{name}"' in file.read_text(encoding="utf-8"):
            settings |= SENDING if file.stem == "outbox_store" else {}
            settings |= FOLDING if file.stem.startswith("facts_") else {}
    return Database(dsn, pool_size=1, timeout_s=36_000, name="test", server_settings=settings)


async def explained(connection: Connection, name: str) -> dict[str, Any]:
    """The plan that is kept for all values, run with some; nothing stays of what it does."""
    values = await arguments(connection, name)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"PREPARE planned AS {query(name)}")
        found = await run(connection, values)
    finally:
        await transaction.rollback()
    return dict(json.loads(found)[0])


async def run(connection: Connection, values: list[str]) -> Any:
    """With values that a table refuses the statement is planned only."""
    try:
        async with connection.transaction():
            return await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {executed(values)}"
            )
    except (asyncpg.CheckViolationError, asyncpg.DataError):
        return await connection.fetchval(
            f"EXPLAIN (FORMAT JSON) {executed(['NULL'] * len(values))}"
        )


def executed(values: list[str]) -> str:
    return f"EXECUTE planned ({', '.join(values)})" if values else "EXECUTE planned"


async def arguments(connection: Connection, name: str) -> list[str]:
    """A literal for each parameter by its type, lists of twenty; ids and keys are of messages in the middle."""
    ids = await connection.fetch(
        "SELECT id, recipient_key FROM email_outbox WHERE id > (SELECT id FROM email_outbox OFFSET $1 LIMIT 1) ORDER BY id LIMIT $2",
        *(ROWS // 2, SOME),
    )
    by_type = {
        "uuid": f"'{ids[0]['id']}'",
        "uuid[]": listed([str(row["id"]) for row in ids]),
        "text": f"'{ids[0]['recipient_key']}'",
        "text[]": listed([row["recipient_key"] for row in ids]),
        "interval": "'1 hour'",
        "timestamptz": "'2026-01-01Z'",
        "bool": "'false'",
        "float8": "'1'",
    }
    if name in WALKS:
        by_type["text"] = "'duty'"
    statement = await connection.prepare(query(name))
    return [literal(parameter.name, by_type) for parameter in statement.get_parameters()]


def literal(kind: str, by_type: dict[str, str]) -> str:
    if kind in by_type:
        return by_type[kind]
    if kind in ("int4[]", "int8[]", "int2[]"):
        return listed([str(n + 1) for n in range(SOME)])
    if kind.endswith("[]"):
        single = by_type.get(kind[:-2], "'{}'").strip("'")
        return listed([single] * SOME)
    return "'1000'" if kind in ("int4", "int8", "int2") else "NULL"


def listed(values: list[str]) -> str:
    return "'{" + ",".join(f'"{value}"' for value in values) + "}'"


def wrong(node: dict[str, Any]) -> Iterator[str]:
    """What reads a large table whole, or more of it than any batch asks for."""
    table = node.get("Relation Name")
    if table in LARGE and node["Node Type"] != "ModifyTable":
        read = node.get("Actual Loops", 0) * (
            node.get("Actual Rows", 0)
            + node.get("Rows Removed by Filter", 0)
            + node.get("Rows Removed by Index Recheck", 0)
        )
        if node["Node Type"] == "Seq Scan" or read > MOST_ROWS:
            yield f"{node['Node Type']} of {table} reads {read:.0f} rows"
    for part in node.get("Plans", []):
        yield from wrong(part)
