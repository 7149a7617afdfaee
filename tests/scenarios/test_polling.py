"""Rows that commit behind newer ones (E04), and the pools of the stages through PgBouncer (E07)."""

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import devservers
from streams.adapters.postgres import Database
from streams.domain.topics import Topics
from tests.integration.polling_setup import PollingSetup
from tests.integration.pooled_statements import expected, many
from tests.integration.relay_setup import Reader, eventually, streaming
from tests.pgbouncer import knows_prepared_statements, pgbouncer
from tests.scenarios.scene import LONG

pytestmark = pytest.mark.servers

TURNS = 500 if LONG else 100
TASKS = 50
EACH = 50 if LONG else 5
INSERT = (
    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
    "SELECT 'suppressions', $1, 't', jsonb_build_object('n', $2::int)"
)


@pytest.fixture
async def setup(servers: devservers.Servers, database_dsn: str, topics: Topics) -> PollingSetup:
    return PollingSetup(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics
    )


def numbers(records: list[Any]) -> list[int]:
    return [json.loads(record.value)["n"] for record in records]


@pytest.mark.parametrize("mode", ["wal", "poll"])
async def test_e04_rows_that_commit_late_are_relayed_and_those_rolled_back_are_not(
    setup: PollingSetup, mode: str
) -> None:
    late, quick = await asyncpg.connect(setup.dsn), await asyncpg.connect(setup.dsn)
    await (setup.make_index() if mode == "poll" else setup.make_slot())
    committed: list[int] = []

    def have_come(records: list[Any]) -> bool:
        return len(set(numbers(records))) >= len(committed)

    try:
        async with (
            streaming(setup.polling() if mode == "poll" else setup.relay()),
            Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
        ):
            for turn in range(TURNS):
                transaction = late.transaction()
                await transaction.start()
                await late.execute(INSERT, "a", 2 * turn)
                await quick.execute(INSERT, "b", 2 * turn + 1)
                committed.append(2 * turn + 1)
                await reader.read(have_come)
                if turn % 10 == 9:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    committed.append(2 * turn)
            await reader.read(have_come)
            if mode == "poll":
                await eventually(setup.is_empty)
            assert sorted(numbers(await reader.rest())) == sorted(committed)
    finally:
        await late.close()
        await quick.close()


@pytest.mark.parametrize("prepared", [None, 200])
async def test_e07_statements_of_many_tasks_through_a_pooler_in_transaction_mode(
    database_dsn: str, tmp_path: Path, prepared: int | None
) -> None:
    """Two statements a turn, one of them in a transaction of several."""
    if prepared is not None and not knows_prepared_statements():
        pytest.skip("this pgbouncer is older than 1.21 and has no max_prepared_statements")
    with pgbouncer(database_dsn, tmp_path, max_prepared_statements=prepared) as dsn:
        async with Database(
            dsn, pool_size=20, timeout_s=30, name="test", pooler="transaction"
        ) as database:
            assert await many(database, tasks=TASKS, each=EACH) == expected(tasks=TASKS, each=EACH)
