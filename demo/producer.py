"""An application: it places orders and, in the same transaction, commits the intent to send the mails about them."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from demo.plan import SENDER, Kind, Message

CONNECTIONS = 4


@dataclass(slots=True)
class Committed:
    """What the application knows: the id of each order's mail, and when its transaction was committed."""

    ids: dict[int, UUID] = field(default_factory=dict)
    at: dict[UUID, float] = field(default_factory=dict)
    twins_with_another_id: int = 0

    def add(self, made: Sequence[tuple[Message, UUID, UUID | None]]) -> None:
        now = time.time()
        for message, outbox_id, twin in made:
            self.ids[message.number] = outbox_id
            self.at[outbox_id] = now
            if twin is not None and twin != outbox_id:
                self.twins_with_another_id += 1


class RolledBack(Exception):
    """The application changed its mind."""


async def prepare(pool: "asyncpg.Pool[asyncpg.Record]", suppressed: Sequence[str]) -> None:
    """The business table, and the addresses that somebody suppressed before."""
    await pool.execute(
        "CREATE TABLE IF NOT EXISTS demo_order (number bigint PRIMARY KEY, placed timestamptz DEFAULT now())"
    )
    await pool.execute(
        "INSERT INTO suppression (recipient_key, reason) SELECT recipient_key(a), 'manual' FROM unnest($1::text[]) AS a ON CONFLICT DO NOTHING",
        list(suppressed),
    )


async def commit(
    pool: "asyncpg.Pool[asyncpg.Record]", messages: Sequence[Message], committed: Committed
) -> None:
    """One transaction of the application; those marked as rolled back leave nothing."""
    made: list[tuple[Message, UUID, UUID | None]] = []
    try:
        async with pool.acquire() as connection, connection.transaction():
            for message in messages:
                await connection.execute(
                    "INSERT INTO demo_order (number) VALUES ($1)", message.number
                )
                outbox_id = await enqueue(connection, message)
                twin = await enqueue(connection, message) if message.twin else None
                made.append((message, outbox_id, twin))
            if messages[0].rolled_back:
                raise RolledBack
    except RolledBack:
        return
    committed.add(made)


async def enqueue(
    connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]", message: Message
) -> UUID:
    """The producer's whole duty: one call in its own transaction."""
    broken = message.kind is Kind.BROKEN
    due = (
        None
        if message.due_in_s is None
        else datetime.now(UTC) + timedelta(seconds=message.due_in_s)
    )
    made = await connection.fetchval(
        "SELECT enqueue_email(recipient => $1, sender => $2, subject => $3, body_text => $4, template => $5, "
        "tenant => $6, lane => $7, dedup_key => $8, send_after => $9, cc => $10)",
        message.recipient,
        SENDER,
        None if broken else f"Your order {message.number}",
        None if broken else f"Thank you for order {message.number}.",
        "nobody-made-this-template" if broken else None,
        message.tenant,
        message.lane,
        f"order-{message.number}" if message.twin else None,
        due,
        None if message.cc is None else [message.cc],
    )
    return UUID(str(made))


class Gate:
    """How many messages the application may commit for now, and how many it has begun."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = asyncio.Condition()
        self.begun = 0

    async def raise_to(self, limit: int) -> None:
        async with self._changed:
            self._limit = max(limit, self._limit)
            self._changed.notify_all()

    async def take(self, count: int) -> bool:
        """Waits until there is room; True if it had to wait."""
        async with self._changed:
            waits = self.begun >= self._limit
            await self._changed.wait_for(lambda: self.begun < self._limit)
            self.begun += count
            self._changed.notify_all()
            return waits

    async def reached(self, count: int) -> None:
        """Waits until so many are begun."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.begun >= count)


async def run(
    pool: "asyncpg.Pool[asyncpg.Record]",
    transactions: Sequence[Sequence[Message]],
    committed: Committed,
    *,
    per_second: float,
    gate: Gate,
) -> None:
    """Commits the transactions over several connections, at the pace and as far as the gate allows."""
    due = time.monotonic()
    running: set[asyncio.Task[None]] = set()
    for messages in transactions:
        if await gate.take(len(messages)):
            due = time.monotonic()
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due += len(messages) / per_second
        running.add(asyncio.create_task(commit(pool, messages, committed)))
        if len(running) >= CONNECTIONS:
            finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
    await asyncio.gather(*running)
