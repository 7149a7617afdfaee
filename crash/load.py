"""The application: commits its transactions at their times, suppresses, cancels, changes its mind, and knows what it committed."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from crash.scenario import Message, Scenario, Transaction

SENDER: Final = "shop@example.com"
CONNECTIONS: Final = 6
_TICK_S: Final = 0.02
_LOOK_S: Final = 0.5
_ENQUEUE: Final = (
    "SELECT enqueue_email(recipient => m.recipient, sender => $8, subject => 'Message ' || m.number, body_text => 'Hello', "
    "tenant => m.tenant, lane => m.lane, dedup_key => m.key, send_after => m.due, expires_at => m.over, "
    "cc => CASE WHEN m.copy IS NULL THEN NULL ELSE ARRAY[m.copy] END) "
    "FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::text[], $9::int[]) "
    "AS m (recipient, tenant, lane, key, due, over, copy, number)"
)
_SUPPRESS: Final = (
    "INSERT INTO suppression (recipient_key, reason) SELECT DISTINCT recipient_key(a), 'manual' FROM unnest($1::text[]) AS a "
    "ON CONFLICT DO NOTHING"
)
_CANCEL: Final = "UPDATE email_outbox SET state = 'cancelled' WHERE id = ANY ($1::uuid[]) AND state IN ('pending', 'ambiguous')"
_BROKEN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)  # fmt: skip


@dataclass(slots=True)
class Known:
    """What the application knows. doubtful: its COMMIT was not answered, so that both are right."""

    committed: dict[UUID, int] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)


class LoadClock:
    """Seconds of the round, which stand still while too much waits to be sent: so that on a slow machine, too, load and
    disturbances stay together. backlog: tells how much waits; if that is the same for too long it will not change any more,
    and the load ends."""

    def __init__(
        self, backlog: Callable[[], Awaitable[int]], *, most: int, still_s: float = 120.0
    ) -> None:
        self._backlog = backlog
        self._most = most
        self._still_s = still_s
        self._now = 0.0
        self._over = False
        self.stands_still = False

    async def reached(self, at: float) -> None:
        """Waits for that second, or until the load is over."""
        while self._now < at and not self._over:  # noqa: ASYNC110 the clock below moves on
            await asyncio.sleep(_TICK_S)

    def over(self) -> None:
        self._over = True

    async def run(self) -> None:
        """Moves on until the load is over."""
        last, looked, waits = time.monotonic(), 0.0, False
        before, changed = 0, last
        while not self._over:
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            if now - looked > _LOOK_S:
                looked = now
                try:
                    backlog = await self._backlog()
                except _BROKEN:
                    backlog = 0
                waits = backlog > self._most
                if not waits or backlog != before:
                    before, changed = backlog, now
                self.stands_still = now - changed > self._still_s
                self._over = self._over or self.stands_still
            self._now += 0.0 if waits else now - last
            last = now


class RolledBack(Exception):
    """The application changed its mind."""


class Load:
    """Runs once."""

    def __init__(
        self, scenario: Scenario, pool: "asyncpg.Pool[asyncpg.Record]", clock: "LoadClock"
    ) -> None:
        self.known = Known()
        self._scenario = scenario
        self._pool = pool
        self._clock = clock
        self._room = asyncio.Semaphore(CONNECTIONS)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for transaction in self._scenario.load():
                    await self._clock.reached(transaction.at)
                    if self._clock.stands_still:
                        return
                    await self._room.acquire()
                    group.create_task(self._perform(transaction))
        finally:
            self._clock.over()

    async def _perform(self, transaction: Transaction) -> None:
        try:
            await self._suppress(transaction.suppress_first)
            await self._commit(transaction)
            await self._suppress(transaction.suppress_then)
            await self._cancel(transaction)
        finally:
            self._room.release()

    def key(self, number: int) -> str:
        """Of each message, unique over all rounds."""
        return f"{self._scenario.seed}-{self._scenario.number}-{number}"

    async def _commit(self, transaction: Transaction) -> None:
        keys = [self.key(m.number) for m in transaction.messages]
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                rows = await connection.fetch(_ENQUEUE, *self._columns(transaction.messages, keys))
                if transaction.rolled_back:
                    raise RolledBack
        except RolledBack:
            self.known.undone.update(keys)
        except _BROKEN:
            self.known.doubtful.update(keys)
            await asyncio.sleep(0.2)
        else:
            self.known.committed |= {
                row[0]: m.number for row, m in zip(rows, transaction.messages, strict=True)
            }

    @staticmethod
    def _columns(messages: Sequence[Message], keys: Sequence[str]) -> list[object]:
        now = datetime.now(UTC)

        def later(seconds: float | None) -> datetime | None:
            return None if seconds is None else now + timedelta(seconds=seconds)

        return [
            [m.recipient for m in messages],
            [m.tenant for m in messages],
            [m.lane for m in messages],
            list(keys),
            [later(m.due_s) for m in messages],
            [later(m.expires_s) for m in messages],
            [m.copy for m in messages],
            SENDER,
            [m.number for m in messages],
        ]

    async def _suppress(self, addresses: Sequence[str]) -> None:
        if addresses:
            await self._try(_SUPPRESS, list(addresses))

    async def _cancel(self, transaction: Transaction) -> None:
        numbers = set(transaction.cancel)
        ids = [i for i, n in self.known.committed.items() if n in numbers] if numbers else []
        if ids:
            await self._try(_CANCEL, ids)

    async def _try(self, sql: str, argument: Sequence[object]) -> None:
        """What does not happen while PostgreSQL is away is left out."""
        try:
            await self._pool.execute(sql, argument)
        except _BROKEN:
            await asyncio.sleep(0.2)
