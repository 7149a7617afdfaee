"""The pools of the stages behind a real PgBouncer, which gives each transaction another session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streams.adapters.postgres import Database, Pooler
from streams.domain.errors import Misconfigured
from tests.pgbouncer import knows_prepared_statements, pgbouncer

pytestmark = pytest.mark.servers

# Parameters and results of the kinds that our statements have.
STATEMENT = (
    "SELECT $1::int + 1 AS n, $2::text AS t, ARRAY[$1::bigint] AS a, current_setting('jit') AS jit"
)


async def many(database: Database, *, tasks: int, each: int) -> list[tuple[Any, ...]]:
    """Statements of different text from many tasks, each with its own result."""

    async def work(task: int) -> list[tuple[Any, ...]]:
        found = []
        for number in range(each):
            async with database.transaction() as connection:
                rows = await connection.fetch(f"{STATEMENT}, {task} AS task", number, f"{task}")
            found.append(tuple(rows[0]))
            # As the stages ask, each statement a transaction of its own.
            assert await database.value("read_feed_end") == 0
        return found

    found = await asyncio.gather(*(work(task) for task in range(tasks)))
    return [row for rows in found for row in rows]


def expected(*, tasks: int, each: int) -> list[tuple[Any, ...]]:
    return [(n + 1, f"{t}", [n], "off", t) for t in range(tasks) for n in range(each)]


@pytest.mark.parametrize("prepared", [None, 200])
async def test_e07_statements_of_many_tasks_through_a_pooler_in_transaction_mode(
    database_dsn: str, tmp_path: Path, prepared: int | None
) -> None:
    if prepared is not None and not knows_prepared_statements():
        pytest.skip("this pgbouncer is older than 1.21 and has no max_prepared_statements")
    with pgbouncer(database_dsn, tmp_path, max_prepared_statements=prepared) as dsn:
        async with Database(
            dsn, pool_size=20, timeout_s=30, name="test", pooler="transaction"
        ) as database:
            assert await many(database, tasks=50, each=50) == expected(tasks=50, each=50)


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_a_pooler_that_is_not_told_of_is_named_with_its_setting(
    database_dsn: str, tmp_path: Path, mode: str
) -> None:
    with (
        pgbouncer(database_dsn, tmp_path, mode=mode) as dsn,
        pytest.raises(Misconfigured, match="MAILSTREAMS_POSTGRES_POOLER"),
    ):
        await Database(dsn, pool_size=2, timeout_s=10, name="test").start()


async def test_settings_are_kept_behind_a_pooler_in_session_mode(
    database_dsn: str, tmp_path: Path
) -> None:
    with pgbouncer(database_dsn, tmp_path, mode="session") as dsn:
        async with Database(
            dsn, pool_size=4, timeout_s=10, name="test", pooler="session"
        ) as database:
            assert await many(database, tasks=4, each=5) == expected(tasks=4, each=5)


async def test_without_a_pooler_a_setting_for_one_does_no_harm(database_dsn: str) -> None:
    modes: list[Pooler] = ["session", "transaction"]
    for pooler in modes:
        async with Database(
            database_dsn, pool_size=4, timeout_s=10, name="test", pooler=pooler
        ) as database:
            assert await many(database, tasks=4, each=5) == expected(tasks=4, each=5)
