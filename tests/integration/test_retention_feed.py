"""Days of the feed go once Kafka has them, and no insert waits for it."""

import asyncio
import os
import struct
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from streams.adapters.postgres import Database
from streams.adapters.upkeep_store import UpkeepStore
from streams.domain.upkeep import Drop
from tests.integration.outbox_rows import execute, fetch
from tests.integration.relay_setup import eventually

pytestmark = pytest.mark.servers

KEEP = timedelta(days=3)
OLD = "outbox_feed_20260101"
# What the statement promises, and what a busy machine adds to it.
LONGEST_WAIT_S = 0.1 + 0.15


class Reader:
    """A slot in use, whose reader confirms what it is told to."""

    def __init__(self, dsn: str, database: Database) -> None:
        self.slot = f"upkeep_{os.getpid()}_{time.monotonic_ns()}"
        self._dsn = dsn
        self._database = database
        self._connection: psycopg.Connection[Any] | None = None

    async def start(self) -> None:
        await execute(
            self._database,
            "SELECT pg_create_logical_replication_slot($1, 'pgoutput')::text",
            self.slot,
        )
        self._connection = psycopg.connect(self._dsn, replication="database", autocommit=True)
        self._connection.pgconn.exec_(
            f"START_REPLICATION SLOT {self.slot} LOGICAL 0/0 (proto_version '1', publication_names 'mailstreams_feed')".encode()
        )
        await eventually(self._active)

    async def _active(self) -> Any:
        sql = "SELECT active FROM pg_replication_slots WHERE slot_name = $1"
        return await execute(self._database, sql, self.slot)

    async def confirm(self) -> None:
        """Everything that is written by now."""
        lsn = await execute(self._database, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        assert self._connection is not None
        self._connection.pgconn.put_copy_data(struct.pack(">cqqqqb", b"r", lsn, lsn, lsn, 0, 0))
        self._connection.pgconn.flush()

        async def confirmed() -> Any:
            sql = "SELECT confirmed_flush_lsn - '0/0' >= $2::bigint FROM pg_replication_slots WHERE slot_name = $1"
            return await execute(self._database, sql, self.slot, lsn)

        await eventually(confirmed)

    def stop(self) -> None:
        """The slot stays, and nobody reads it."""
        if self._connection is not None:
            self._connection.close()

    async def drop(self) -> None:
        self.stop()

        async def inactive() -> bool:
            return not await self._active()

        await eventually(inactive)
        await execute(self._database, "SELECT pg_drop_replication_slot($1)::text", self.slot)


@pytest.fixture
async def reader(database: Database, database_dsn: str) -> AsyncIterator[Reader]:
    made = Reader(database_dsn, database)
    await made.start()
    yield made
    await made.drop()


@pytest.fixture
def rows(database: Database, reader: Reader) -> UpkeepStore:
    return UpkeepStore(database, slot=reader.slot)


async def make_day(database: Database, *, with_rows: int = 10) -> None:
    """A partition whose day is long over."""
    await execute(
        database,
        f"CREATE TABLE {OLD} PARTITION OF outbox_feed FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')",
    )
    await execute(database, insert_old("2026-01-01 12:00"), with_rows)


def insert_old(ts: str) -> str:
    return f"INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload, ts) SELECT 'outbox.bulk', 'k', 'pointer', '{{}}', '{ts}' FROM generate_series(1, $1)"


async def exists(database: Database) -> bool:
    return await execute(database, f"SELECT to_regclass('{OLD}') IS NOT NULL") is True


async def test_a_day_goes_once_the_slot_has_confirmed_it_and_not_before(
    database: Database, rows: UpkeepStore, reader: Reader
) -> None:
    await make_day(database)
    await rows.mark_feed()
    assert await rows.drop_feed_partition(KEEP) is Drop.UNCONFIRMED
    await reader.confirm()
    assert await rows.drop_feed_partition(KEEP) is Drop.DROPPED
    assert not await exists(database)
    assert await rows.drop_feed_partition(KEEP) is Drop.NONE


async def test_a_row_that_was_not_committed_when_the_mark_was_made_keeps_its_day(
    database: Database, rows: UpkeepStore, reader: Reader
) -> None:
    await make_day(database, with_rows=0)
    async with database.transaction() as connection:
        await connection.execute(insert_old("2026-01-01 23:59"), 1)
        await rows.mark_feed()
        assert await rows.drop_feed_partition(KEEP) is Drop.BUSY
    await reader.confirm()
    assert await rows.drop_feed_partition(KEEP) is Drop.UNCONFIRMED
    await rows.mark_feed()
    await reader.confirm()
    assert await rows.drop_feed_partition(KEEP) is Drop.DROPPED


async def test_what_is_not_old_is_kept(
    database: Database, rows: UpkeepStore, reader: Reader
) -> None:
    await make_day(database)
    await rows.mark_feed()
    await reader.confirm()
    assert await rows.drop_feed_partition(timedelta(days=36_500)) is Drop.NONE
    assert await exists(database)


async def test_without_a_slot_in_use_nothing_with_rows_goes(
    database: Database, rows: UpkeepStore, reader: Reader
) -> None:
    await make_day(database)
    await rows.mark_feed()
    await reader.confirm()
    assert await UpkeepStore(database, slot="none").drop_feed_partition(KEEP) is Drop.UNCONFIRMED
    reader.stop()

    async def refused() -> bool:
        return await rows.drop_feed_partition(timedelta(days=36_500)) is Drop.NONE and not (
            await execute(
                database,
                "SELECT active FROM pg_replication_slots WHERE slot_name = $1",
                reader.slot,
            )
        )

    await eventually(refused)
    assert await rows.drop_feed_partition(KEEP) is Drop.UNCONFIRMED
    assert await exists(database)


@pytest.mark.parametrize(("lsn", "system"), [("0/0", None), ("0/1", None), (None, "another")])
async def test_what_the_relay_still_sends_again_after_it_lost_its_slot_is_kept(
    database: Database, rows: UpkeepStore, reader: Reader, lsn: str | None, system: str | None
) -> None:
    """The new slot stands beyond rows that are not sent yet."""
    await make_day(database)
    await rows.mark_feed()
    await reader.confirm()
    await execute(
        database,
        "INSERT INTO relay_checkpoint (slot, lsn, system_id, timeline) SELECT $1, coalesce($2::text::pg_lsn, pg_current_wal_lsn()), coalesce($3, system_identifier::text), 1 FROM pg_control_system()",
        *(reader.slot, lsn, system),
    )
    assert await rows.drop_feed_partition(KEEP) is Drop.UNCONFIRMED
    await execute(
        database,
        "UPDATE relay_checkpoint SET lsn = pg_current_wal_lsn(), system_id = (SELECT system_identifier::text FROM pg_control_system())",
    )
    assert await rows.drop_feed_partition(KEEP) is Drop.DROPPED


async def test_an_empty_day_needs_no_slot(database: Database) -> None:
    """In polling mode the relay removes what Kafka has."""
    await make_day(database)
    polled = UpkeepStore(database, slot="none")
    assert await polled.drop_feed_partition(KEEP) is Drop.UNCONFIRMED
    await execute(database, f"DELETE FROM {OLD}")
    assert await polled.drop_feed_partition(KEEP) is Drop.DROPPED


async def test_rows_in_no_day_go_by_the_same_rule(
    database: Database, rows: UpkeepStore, reader: Reader
) -> None:
    await execute(database, insert_old("2026-01-01 12:00"), 7)
    await execute(database, insert_old("2125-01-01 12:00"), 1)
    await rows.mark_feed()
    assert await rows.purge_feed_default(KEEP, limit=5) == 0
    await reader.confirm()
    assert await rows.purge_feed_default(KEEP, limit=5) == 5
    assert await rows.purge_feed_default(KEEP, limit=5) == 2
    assert await execute(database, "SELECT count(*) FROM outbox_feed_default") == 1


async def test_marks_that_a_newer_confirmed_one_replaces_are_forgotten(
    database: Database, rows: UpkeepStore, reader: Reader
) -> None:
    for _ in range(3):
        await rows.mark_feed()
    assert await execute(database, "SELECT count(*) FROM feed_mark") == 3
    await reader.confirm()
    await rows.mark_feed()
    assert await execute(database, "SELECT count(*) FROM feed_mark") == 2


HOLDERS = {
    "a writer": "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) VALUES ('outbox.bulk', 'k', 'pointer', '{}')",
    "a reader": "SELECT count(*) FROM outbox_feed WHERE ts > now()",
}


@pytest.mark.parametrize("holder", HOLDERS)
async def test_no_insert_waits_behind_a_drop_that_somebody_holds_up(
    database: Database, rows: UpkeepStore, reader: Reader, holder: str
) -> None:
    await execute(database, "SELECT make_feed_partitions(1)")
    await make_day(database, with_rows=1000)
    await rows.mark_feed()
    await reader.confirm()
    stopping = asyncio.Event()
    waits = [asyncio.create_task(longest_insert(database, stopping)) for _ in range(3)]
    async with database.transaction() as connection:
        await connection.fetch(HOLDERS[holder])
        for _ in range(3):
            assert await rows.drop_feed_partition(KEEP) is Drop.BUSY
    assert await exists(database)

    async def dropped() -> bool:
        return await rows.drop_feed_partition(KEEP) is Drop.DROPPED

    await eventually(dropped)
    stopping.set()
    longest = max(await asyncio.gather(*waits))
    assert longest < LONGEST_WAIT_S
    assert await fetch(database, "SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock'") == []


async def longest_insert(database: Database, stopping: asyncio.Event) -> float:
    longest = 0.0
    while not stopping.is_set():
        begun = time.monotonic()
        await execute(database, HOLDERS["a writer"])
        longest = max(longest, time.monotonic() - begun)
        await asyncio.sleep(0.002)
    return longest
