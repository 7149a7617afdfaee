"""Statements of many tasks on one pool, each with a result of its own, so that a mix-up of sessions shows."""

import asyncio
from typing import Any

from streams.adapters.postgres import Database

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
