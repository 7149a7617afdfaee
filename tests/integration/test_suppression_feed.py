"""Whoever changes suppressions, in whatever order: the last record of each key is the table's truth."""

import asyncio
import os
import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import asyncpg
import orjson
import pytest

import devservers
from streams.adapters.postgres import Connection, Database
from streams.domain.topics import Topics
from tests.integration.relay_setup import Reader, Setup, streaming
from tests.integration.suppression_truth import keys_whose_last_record_differs, truth

pytestmark = pytest.mark.servers

KEYS: Final = [f"{n:032x}" for n in range(1, 5)]
REASONS: Final = ("hard-bounce", "complaint", "manual")
Level = Literal["read_committed", "repeatable_read", "serializable"]
LEVELS: Final[tuple[Level, ...]] = ("read_committed", "repeatable_read", "serializable")
STATEMENTS: Final = (
    "INSERT INTO suppression (recipient_key, reason) VALUES (repeat('b', 32), 'manual')",
    "UPDATE suppression SET evidence_id = 'other'",
    "DELETE FROM suppression",
)


@pytest.mark.timeout(1800)
async def test_many_suppressions_in_one_statement_are_one_record_each(database: Database) -> None:
    """Also where the session has planned while the tables were small, which once took hours for a million.

    SUPPRESSIONS=1000000 in the environment is the long form.
    """
    many = int(os.environ.get("SUPPRESSIONS", "30000"))
    async with database.connection() as connection:
        for _ in range(3):
            await connection.execute(
                "INSERT INTO suppression (recipient_key, reason) VALUES (repeat('a', 32), 'manual')"
            )
            await connection.execute("VACUUM ANALYZE suppression, suppressed_recipient")
            await connection.execute("DELETE FROM suppression")
        await connection.execute("DELETE FROM outbox_feed")
        await connection.execute(
            "INSERT INTO suppression (recipient_key, reason, evidence_id) "
            "SELECT md5(n::text), 'manual', 'import' FROM generate_series(1, $1::int) AS n",
            many,
            timeout=600,
        )
        assert (
            await connection.fetchval(
                "SELECT count(*) FROM outbox_feed WHERE aggregatetype = 'suppressions'",
                timeout=600,
            )
            == many
        )
        assert await keys_whose_last_record_differs(database) == 0
        await connection.execute(
            "UPDATE suppression SET expires = now() + interval '1 day' WHERE recipient_key < '8'",
            timeout=600,
        )
        await connection.execute("DELETE FROM suppression WHERE recipient_key > 'c'", timeout=600)
        assert await keys_whose_last_record_differs(database) == 0


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s[:6])
async def test_other_isolation_levels_are_refused_with_what_to_do(
    database: Database, level: Level, statement: str
) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO suppression (recipient_key, reason) VALUES ($1, 'manual')", KEYS[0]
        )
        with pytest.raises(
            asyncpg.InvalidTransactionStateError, match="READ COMMITTED transactions only"
        ) as refused:
            async with connection.transaction(isolation=level):
                await connection.execute(statement)
    assert refused.value.hint == "Start the transaction with ISOLATION LEVEL READ COMMITTED."
    assert list(await truth(database)) == [KEYS[0]]


class RolledBackError(Exception):
    """The writer has changed its mind."""


class Writer:
    """One connection that inserts, changes and deletes at random, several statements a transaction, some rolled back."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 a repeatable mix
        self.committed = 0
        self.refused = 0

    async def write(self, dsn: str, transactions: int) -> None:
        connection = await asyncpg.connect(dsn, server_settings={"deadlock_timeout": "20ms"})
        try:
            for _ in range(transactions):
                await self._transaction(connection)
        finally:
            await connection.close()

    async def _transaction(self, connection: Connection) -> None:
        level = self._random.choices(LEVELS, weights=(8, 1, 1))[0]
        try:
            async with connection.transaction(isolation=level):
                for _ in range(self._random.randint(1, 3)):
                    await self._statement(connection)
                if self._random.random() < 0.1:
                    raise RolledBackError
        except (RolledBackError, asyncpg.DeadlockDetectedError):
            return
        except (asyncpg.InvalidTransactionStateError, asyncpg.SerializationError):
            assert level != "read_committed"
            self.refused += 1
        else:
            assert level == "read_committed"
            self.committed += 1

    async def _statement(self, connection: Connection) -> None:
        keys = self._random.sample(KEYS, self._random.randint(1, len(KEYS)))
        reason = self._random.choice(REASONS)
        evidence = f"e-{self._random.random()}"
        expires = self._random.choice([None, datetime.now(UTC) + timedelta(days=1)])
        match self._random.randint(0, 3):
            case 0:
                await connection.execute(
                    "INSERT INTO suppression (recipient_key, reason, evidence_id) SELECT k, $2, $3 FROM unnest($1::text[]) AS k "
                    "ON CONFLICT DO NOTHING",
                    *(keys, reason, evidence),
                )
            case 1:
                await connection.execute(
                    "INSERT INTO suppression (recipient_key, reason, evidence_id, expires) SELECT k, $2, $3, $4 FROM unnest($1::text[]) AS k "
                    "ON CONFLICT (recipient_key, tenant, lane, reason) DO UPDATE SET evidence_id = excluded.evidence_id, expires = excluded.expires",
                    *(keys, reason, evidence, expires),
                )
            case 2:
                await connection.execute(
                    "UPDATE suppression SET evidence_id = $2 WHERE recipient_key = ANY ($1::text[])",
                    *(keys, evidence),
                )
            case _:
                await connection.execute(
                    "DELETE FROM suppression WHERE recipient_key = ANY ($1::text[]) AND reason = $2",
                    *(keys, reason),
                )


@pytest.mark.parametrize("seed", range(3))
async def test_writers_of_one_recipient_at_once_leave_the_truth_last(
    database: Database, database_dsn: str, seed: int
) -> None:
    writers = [Writer(seed * 100 + n) for n in range(8)]
    await asyncio.gather(*(writer.write(database_dsn, 80) for writer in writers))
    assert sum(w.committed for w in writers) > 100
    assert sum(w.refused for w in writers) > 10
    assert await keys_whose_last_record_differs(database) == 0


async def test_the_last_record_of_a_key_in_kafka_is_the_truth(
    servers: devservers.Servers, topics: Topics, database: Database, database_dsn: str
) -> None:
    setup = Setup(
        dsn=database_dsn, bootstrap_servers=servers.kafka.bootstrap_servers, topics=topics
    )
    await setup.make_slot()
    async with streaming(setup.relay()):
        await asyncio.gather(*(Writer(900 + n).write(database_dsn, 40) for n in range(5)))
        async with database.connection() as connection:
            await connection.execute("DELETE FROM suppression WHERE recipient_key = $1", KEYS[0])
        last_of = await fetch_last(database)
        async with Reader(setup.bootstrap_servers, topics.suppressions) as reader:
            records = await reader.read(
                lambda found: set(last_of.values()) <= {sequence(record) for record in found}
            )
    kept = {record.key.decode(): record for record in records}  # what compaction leaves
    assert {key: sequence(record) for key, record in kept.items()} == last_of
    values = {key: orjson.loads(r.value) for key, r in kept.items() if r.value is not None}
    assert values == await truth(database)
    assert KEYS[0] not in values


async def fetch_last(database: Database) -> dict[str, int]:
    """The sequence of each key's last record in the feed."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT aggregateid, max(seq) AS seq FROM outbox_feed WHERE aggregatetype = 'suppressions' GROUP BY 1"
        )
    return {row["aggregateid"]: row["seq"] for row in rows}


def sequence(record: Any) -> int:
    return int(dict(record.headers)["seq"])


async def test_whoever_may_write_the_table_is_announced_and_nobody_announces_without_it(
    database: Database,
) -> None:
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute("CREATE ROLE suppresses; CREATE ROLE strange")
            await connection.execute("GRANT INSERT ON suppression TO suppresses")
            await connection.execute("SET LOCAL ROLE suppresses")
            await connection.execute(STATEMENTS[0])
            await connection.execute("SET LOCAL ROLE strange")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connection.transaction():
                    await connection.execute("SELECT announce_suppressions(ARRAY['anything'])")
            await connection.execute("RESET ROLE")
            told = "SELECT aggregateid FROM outbox_feed WHERE aggregatetype = 'suppressions'"
            assert [row[0] for row in await connection.fetch(told)] == ["b" * 32]
        finally:
            await transaction.rollback()


async def test_a_truncate_that_nobody_would_hear_of_is_refused(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(STATEMENTS[0])
        with pytest.raises(asyncpg.FeatureNotSupportedError) as refused:
            await connection.execute("TRUNCATE suppression")
        assert refused.value.hint == "DELETE FROM suppression"
        assert await connection.fetchval("SELECT count(*) FROM suppression") == 1
    assert await keys_whose_last_record_differs(database) == 0
