"""Polling: every committed row becomes the record that it would be in wal mode, whenever it commits, and is then removed."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest

import devservers
from streams.domain.errors import Misconfigured
from streams.domain.topics import Topics
from tests.integration.polling_setup import PollingSetup
from tests.integration.relay_setup import Reader, eventually, running, streaming

pytestmark = pytest.mark.servers

INSERT = (
    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
    "SELECT 'suppressions', $1, 't', jsonb_build_object('n', $2::int)"
)


@pytest.fixture
async def setup(servers: devservers.Servers, database_dsn: str, topics: Topics) -> PollingSetup:
    made = PollingSetup(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics
    )
    await made.make_index()
    return made


def numbers(records: list[Any]) -> list[int]:
    return [json.loads(record.value)["n"] for record in records]


def has_all(count: int) -> Any:
    return lambda records: len(set(numbers(records))) >= count


async def test_what_is_acknowledged_is_removed_and_a_restart_repeats_nothing(
    setup: PollingSetup,
) -> None:
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(setup.polling()):
            await setup.insert(0, 5000)
            await reader.read(has_all(5000))
            await eventually(setup.is_empty)
            await setup.insert(5000, 5500)
        await setup.insert(5500, 5600)
        async with streaming(setup.polling()):
            await reader.read(has_all(5600))
            await eventually(setup.is_empty)
        assert len(await reader.rest()) == 5600
    order: dict[bytes, list[int]] = {}
    for record in reader.records:
        order.setdefault(record.key, []).append(json.loads(record.value)["n"])
    assert all(found == sorted(found) for found in order.values())


async def test_e04_rows_that_commit_late_are_relayed_and_those_rolled_back_are_not(
    setup: PollingSetup,
) -> None:
    late, quick = await asyncpg.connect(setup.dsn), await asyncpg.connect(setup.dsn)
    committed: list[int] = []
    try:
        async with (
            streaming(setup.polling()),
            Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader,
        ):
            for turn in range(500):
                transaction = late.transaction()
                await transaction.start()
                await late.execute(INSERT, "a", 2 * turn)
                await quick.execute(INSERT, "b", 2 * turn + 1)
                committed.append(2 * turn + 1)
                await reader.read(has_all(len(committed)))
                if turn % 10 == 9:
                    await transaction.rollback()
                else:
                    await transaction.commit()
                    committed.append(2 * turn)
            await reader.read(has_all(len(committed)))
            await eventually(setup.is_empty)
            assert sorted(numbers(await reader.rest())) == sorted(committed)
    finally:
        await late.close()
        await quick.close()
