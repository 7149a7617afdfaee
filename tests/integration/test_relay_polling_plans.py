"""Polling reads by its index, also of tables that nobody has analysed, and not again what was removed while an old snapshot keeps it."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from streams.adapters.feed_index import make_feed_index
from streams.adapters.postgres import Connection, Database
from streams.adapters.queries import query
from streams.adapters.relay_poll_store import PLANNER
from streams.domain.topics import Topics
from tests.integration.relay_setup import Setup

pytestmark = pytest.mark.servers

WHOLE = (1, [0], None, 0)


async def plan(connection: Connection, name: str, *arguments: Any) -> dict[str, Any]:
    """Of the query with these arguments, run as the relay's pool runs it."""
    text = query(name)
    await connection.execute("DEALLOCATE ALL")
    await connection.execute(f"PREPARE looked_at AS {text}")
    values = ", ".join(map(literal, arguments))
    found = await connection.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looked_at ({values})"
    )
    return dict(json.loads(found)[0]["Plan"])


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "'{" + ",".join(f'"{part}"' for part in value) + "}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def nodes(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield found
    for part in found.get("Plans", []):
        yield from nodes(part)


def blocks(found: dict[str, Any]) -> int:
    return int(found["Shared Hit Blocks"]) + int(found["Shared Read Blocks"])


@pytest.fixture
async def setup(database_dsn: str) -> Setup:
    return Setup(dsn=database_dsn, bootstrap_servers="", topics=Topics(prefix="none."))


@pytest.mark.parametrize("analysed", [False, True])
async def test_every_query_of_the_feed_goes_by_the_index(setup: Setup, analysed: bool) -> None:
    async with Database(
        setup.dsn, pool_size=2, timeout_s=30, name="test", server_settings=PLANNER
    ) as database:
        await make_feed_index(database)
        await setup.insert(0, 2_000)
        if analysed:
            await setup.execute("ANALYZE outbox_feed")
        async with database.connection() as connection:
            row = await connection.fetchrow(
                "SELECT seq, id::text, ts::text FROM outbox_feed LIMIT 1"
            )
            assert row is not None
            plans = [
                await plan(connection, "read_feed_page", 10, 2_000, 100, 10_000_000, *WHOLE),
                await plan(connection, "list_feed_behind", 0, 2_000, 100, *WHOLE),
                await plan(connection, "list_feed_acknowledged", 0, 2_000, 100, "1:1:", 1),
                await plan(connection, "delete_feed_rows", [row["seq"]], [row["id"]], [row["ts"]]),
            ]
    for found in plans:
        kinds = {node["Node Type"] for node in nodes(found)}
        assert kinds & {"Index Scan", "Index Only Scan"}
        assert not kinds & {"Seq Scan", "Bitmap Heap Scan", "Sort", "Hash Join", "Merge Join"}


async def test_removed_rows_that_an_old_snapshot_keeps_are_not_read_again_at_each_look(
    setup: Setup,
) -> None:
    old = await asyncpg.connect(setup.dsn)
    try:
        async with Database(
            setup.dsn, pool_size=2, timeout_s=30, name="test", server_settings=PLANNER
        ) as database:
            await make_feed_index(database)
            snapshot = old.transaction(isolation="repeatable_read")
            await snapshot.start()
            await old.execute("SELECT 1")
            await setup.insert(0, 20_000, per_commit=1_000)
            await setup.execute("DELETE FROM outbox_feed")
            await setup.insert(20_000, 20_100)
            async with database.connection() as connection:
                all_again = await plan(
                    connection, "read_feed_page", 0, 20_100, 2_000, 10_000_000, *WHOLE
                )
                from_there = await plan(
                    connection, "read_feed_page", 20_000, 20_100, 2_000, 10_000_000, *WHOLE
                )
            assert all_again["Actual Rows"] == from_there["Actual Rows"] == 100
            assert blocks(from_there) * 10 < blocks(all_again)
    finally:
        await old.close()
