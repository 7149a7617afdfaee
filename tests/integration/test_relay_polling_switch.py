"""From wal mode to polling and back, while writers go on: nothing is lost and every key keeps its order."""

import json
from typing import Any

import asyncpg
import pytest

import devservers
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database
from streams.domain.topics import Topics
from tests.conftest import SALT
from tests.integration.numbered_rows import numbered_writers, without_repeats
from tests.integration.polling_setup import PollingSetup
from tests.integration.relay_setup import Reader, eventually, streaming

pytestmark = pytest.mark.servers

INSERT = (
    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
    "SELECT 'suppressions', 'late', 't', jsonb_build_object('n', $1::int)"
)


def numbers(records: list[Any]) -> list[int]:
    return [json.loads(record.value)["n"] for record in records]


@pytest.fixture
def setup(servers: devservers.Servers, database_dsn: str, topics: Topics) -> PollingSetup:
    return PollingSetup(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics
    )


async def test_there_and_back_again_under_writers(setup: PollingSetup, database: Database) -> None:
    """By the steps of docs/relay.md: the relay is stopped, migrate is run in the other mode, a relay of it is started."""

    async def to(*, polling: bool) -> None:
        await migrate(database, salt=SALT, slot=setup.slot, polling=polling)

    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        await to(polling=False)
        async with numbered_writers(setup.dsn, 4) as writers:
            for _ in range(2):
                async with streaming(setup.relay()):
                    await reader.read(writers.newer_rows_have_come())
                await to(polling=True)
                async with streaming(setup.polling()):
                    assert await setup.confirmed() == 0  # the slot is gone
                    await reader.read(writers.newer_rows_have_come())
                await to(polling=False)
            async with streaming(setup.relay()):
                await reader.read(writers.newer_rows_have_come())
                await writers.stop()
                await reader.read(writers.all_have_come)
        assert without_repeats(await reader.rest()) == writers.all_numbers()


async def test_rows_that_polling_left_are_sent_by_the_first_relay_in_wal_mode(
    setup: PollingSetup, database: Database
) -> None:
    """No relay in wal mode was ever here, so that migrate might think that its slot is the first."""
    await migrate(database, salt=SALT, slot=setup.slot, polling=True)
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(setup.polling()):
            await setup.insert(0, 100)
            await reader.read(lambda records: len(records) >= 100)
            await eventually(setup.is_empty)
        await setup.insert(100, 200)
        await migrate(database, salt=SALT, slot=setup.slot)
        async with streaming(setup.relay()):
            await reader.read(lambda records: len(records) >= 200)
        assert len(await reader.rest()) == 200


@pytest.mark.parametrize("history", ["this one", "another one"])
async def test_what_a_snapshot_sees_is_removed_and_not_sent_unless_it_is_of_another_history(
    setup: PollingSetup, database: Database, history: str
) -> None:
    await migrate(database, salt=SALT, slot=None, polling=True)
    await setup.insert(0, 12_000, per_commit=3_000)
    await setup.execute(
        "INSERT INTO relay_acknowledged (snapshot, system_id, timeline) "
        "SELECT pg_current_snapshot(), system_identifier::text, $1 FROM pg_control_system()",
        1 if history == "this one" else 2,
    )
    await setup.insert(12_000, 12_100)
    sent = 100 if history == "this one" else 12_100
    async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
        async with streaming(setup.polling()):
            await reader.read(lambda records: len(records) >= sent)
            await eventually(setup.is_empty)
        assert len(await reader.rest()) == sent
    remembered = await setup.value("SELECT count(*) FROM relay_acknowledged WHERE timeline = 1")
    assert remembered == 0


@pytest.mark.parametrize("slot", ["there", "dropped"])
async def test_what_a_relay_in_wal_mode_had_sent_is_not_sent_again_if_its_slot_can_tell(
    setup: PollingSetup, database: Database, slot: str
) -> None:
    """Transactions before, beside and after the relay, some of which commit in another order than they began."""
    await migrate(database, salt=SALT, slot=setup.slot)
    late = await asyncpg.connect(setup.dsn)
    try:
        async with Reader(setup.bootstrap_servers, setup.topics.suppressions) as reader:
            open_all_along = late.transaction()
            await open_all_along.start()
            await late.execute(INSERT, 10_000)
            async with streaming(setup.relay()):
                await setup.insert(0, 500)
                await reader.read(lambda records: len(records) >= 500)
            await setup.insert(500, 600)
            await open_all_along.commit()
            if slot == "dropped":
                await setup.execute("SELECT pg_drop_replication_slot($1)", setup.slot)
            await migrate(database, salt=SALT, slot=setup.slot, polling=True)
            async with streaming(setup.polling()):
                await reader.read(lambda records: len(set(numbers(records))) >= 601)
                await eventually(setup.is_empty)
            sent = numbers(await reader.rest())
    finally:
        await late.close()
    assert set(sent) == {*range(600), 10_000}
    assert len(sent) == (601 if slot == "there" else 1_101)
    assert await setup.confirmed() == 0  # nobody keeps WAL any more
