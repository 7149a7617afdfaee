"""Where claims are measured: a real PostgreSQL with mail to send and suppressions, and one connection as a sender has it."""

import os
import random
import time
from contextlib import AsyncExitStack
from typing import Any, Final, Self
from uuid import UUID

import devservers
from benchmarks.backend_cpu import clock_of
from benchmarks.bare_claims import FILL, TABLES
from devservers.settings import ServerSettings
from streams.adapters.migrations import migrate
from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Connection, Database
from streams.domain.addresses import recipient_key
from streams.domain.attempts import AttemptId, new_attempt_id

SALT: Final = b"benchmark-salt-of-thirty-two-byte"
BODY_BYTES: Final = 4096


class ClaimsStand:
    """An async context: everything runs inside of it."""

    def __init__(self, *, rows: int, suppressions: int) -> None:
        self._rows, self._suppressions = rows, suppressions
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        servers = self._stack.enter_context(devservers.running(ServerSettings(kafka=False)))
        name = f"bench_{time.time_ns()}"
        dsn = servers.postgres.create_database(name)
        self._stack.callback(servers.postgres.drop_database, name)
        async with Database(dsn, pool_size=1, timeout_s=300, name="benchmark") as filling:
            await migrate(filling, salt=SALT, slot=None)
            async with filling.connection() as connection:
                await self._fill(connection)
        self._watch = await self._stack.enter_async_context(
            Database(dsn, pool_size=1, timeout_s=60, name="benchmark")
        )
        self.database = await self._stack.enter_async_context(
            Database(dsn, pool_size=1, timeout_s=60, name="sender", server_settings=PLANNER)
        )
        self.store = OutboxStore(self.database, max_attempts=5)
        async with self.database.connection() as connection:
            self.postgres = str(await connection.fetchval("SHOW server_version"))
            self.clock_kind, self.clock = clock_of(
                await connection.fetchval("SELECT pg_backend_pid()")
            )

    async def _fill(self, connection: Connection) -> None:
        words = _words(random.Random(1))  # noqa: S311 the same bodies every time
        await connection.copy_records_to_table(
            "suppression",
            columns=["recipient_key", "reason"],
            records=[
                (recipient_key(f"gone{n}@example.com", SALT), "hard-bounce")
                for n in range(self._suppressions)
            ],
        )
        self.ids = [
            UUID(int=new_attempt_id(_now_ms(), os.urandom(10)).int) for _ in range(self._rows)
        ]
        self.ids.sort()
        await connection.copy_records_to_table(
            "email_outbox",
            columns=["id", "recipient", "sender", "subject", "text"],
            records=(
                (id_, f"user{n}@example.com", "shop@example.com", f"Order {n}", words(n))
                for n, id_ in enumerate(self.ids)
            ),
        )
        await connection.execute(TABLES)
        await connection.execute(FILL)
        await connection.execute("VACUUM (ANALYZE)")
        await connection.execute("CHECKPOINT")

    async def counters(self, table: str) -> dict[str, int]:
        """Updates of a table so far, heap-only ones among them, and bytes of WAL of the server."""
        async with self.database.connection() as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
        async with self._watch.connection() as connection:
            row = await connection.fetchrow(
                "SELECT n_tup_upd AS updates, n_tup_hot_upd AS hot, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS wal "
                "FROM pg_stat_user_tables WHERE relname = $1",
                table,
            )
        return dict(row or {})


def token() -> AttemptId:
    return new_attempt_id(_now_ms(), os.urandom(10))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _words(generator: random.Random) -> Any:
    """A maker of bodies that compress as prose does."""
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    known = ["".join(generator.choices(letters, k=generator.randint(2, 9))) for _ in range(2000)]

    def body(number: int) -> str:
        return f"{number} {' '.join(generator.choices(known, k=BODY_BYTES // 6))}"[:BODY_BYTES]

    return body
