"""The writers: they commit, roll back as a whole or in part, take long, suppress and lift, and write down what they did."""

import asyncio
import hashlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg

from relayfuzz.plan import Load, Plan

AGGREGATES: Final = ("outbox.bulk", "outbox.transactional", "delivery-events")
REASONS: Final = ("manual", "complaint", "unsubscribed")
BROKEN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)  # fmt: skip
WRITE: Final = "SELECT fuzz_write($1::text[], $2::int[], $3, $4)"
_ADD: Final = (
    "INSERT INTO suppression (recipient_key, reason, evidence_id) SELECT k, $2, $3 FROM unnest($1::text[]) AS k ORDER BY k "
    "ON CONFLICT DO NOTHING"
)
_AGAIN: Final = "UPDATE suppression SET evidence_id = $2 WHERE recipient_key = ANY ($1::text[])"
_LIFT: Final = "DELETE FROM suppression WHERE recipient_key = ANY ($1::text[])"
_MAKE_KEYS: Final = "INSERT INTO fuzz_key (key) SELECT unnest($1::text[])"
_PAUSE_S: Final = 0.3


@dataclass(slots=True)
class Known:
    """What the writers know: rows by the moment at which their COMMIT was answered; asynchronous: a crash of PostgreSQL may
    take them back; undone: rolled back before any COMMIT. What had no answer is in none of them."""

    committed: dict[UUID, float] = field(default_factory=dict)
    asynchronous: dict[UUID, float] = field(default_factory=dict)
    undone: set[UUID] = field(default_factory=set)
    transactions: int = 0


class Writers:
    """Run once."""

    def __init__(self, plan: Plan, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self.known = Known()
        self._plan = plan
        self._pool = pool
        self._over = asyncio.Event()

    async def prepare(self) -> None:
        load = self._plan.load
        keys = [_key("k", n) for n in range(load.keys)]
        keys += [LAST_KEY, *(_key("long", n) for n in range(load.writers))]
        await self._pool.execute(_MAKE_KEYS, keys)

    async def run(self) -> None:
        """Until stop(); what is under way then is finished."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.load.writers):
                group.create_task(self._write_on(number))

    def stop(self) -> None:
        self._over.set()

    async def _write_on(self, number: int) -> None:
        plan = self._plan
        rng = random.Random(f"{plan.seed}/{plan.number}/writer-{number}")  # noqa: S311 a script, no secret
        pause = plan.load.writers / plan.load.per_second
        while not self._over.is_set():
            try:
                await self._transaction(rng, number)
            except BROKEN:
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(rng.expovariate(1 / pause))

    async def _transaction(self, rng: random.Random, number: int) -> None:
        load = self._plan.load
        wanted = _Wanted.of(rng, load)
        written: list[UUID] = []
        undone: list[UUID] = []
        asked = False
        async with self._pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                if wanted.asynchronous:
                    await connection.execute("SET LOCAL synchronous_commit = off")
                await self._fill(connection, rng, number, wanted, written=written, undone=undone)
                asked = not wanted.rolled_back
                await (transaction.rollback() if wanted.rolled_back else transaction.commit())
            except BROKEN:
                self.known.undone.update(undone)
                # Without an answer to a COMMIT nobody knows; before it nothing can have been committed.
                if not asked:
                    self.known.undone.update(written)
                raise
        self._note(wanted, written, undone)

    def _note(self, wanted: "_Wanted", written: Sequence[UUID], undone: Sequence[UUID]) -> None:
        known = self.known
        known.transactions += 1
        known.undone.update(undone)
        if wanted.rolled_back:
            known.undone.update(written)
            return
        into = known.asynchronous if wanted.asynchronous else known.committed
        into.update(dict.fromkeys(written, time.time()))

    async def _fill(
        self,
        connection: Any,
        rng: random.Random,
        number: int,
        wanted: "_Wanted",
        *,
        written: list[UUID],
        undone: list[UUID],
    ) -> None:
        """The keys are locked in one order over the parts, so that no two writers wait for each other."""
        if wanted.suppressing:
            await _suppress(connection, rng, self._plan.load.recipients)
            return
        if wanted.lasting:
            written += await _write(connection, rng, [_key("long", number)], wanted.rows)
            await asyncio.sleep(rng.uniform(1.0, 6.0))
            return
        count = max(1, min(rng.choice((1, 1, 2, 5, 30)), wanted.rows))
        keys = sorted(_key("k", n) for n in rng.sample(range(self._plan.load.keys), count))
        if not wanted.partly_rolled_back or count < 3:
            written += await _write(connection, rng, keys, wanted.rows)
            return
        third = count // 3
        written += await _write(connection, rng, keys[:third], wanted.rows // 3)
        part = connection.transaction()
        await part.start()
        undone += await _write(connection, rng, keys[third : 2 * third], wanted.rows // 3)
        await part.rollback()
        written += await _write(connection, rng, keys[2 * third :], wanted.rows // 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One transaction as the dice fell."""

    rows: int
    suppressing: bool
    rolled_back: bool
    partly_rolled_back: bool
    lasting: bool
    asynchronous: bool

    @classmethod
    def of(cls, rng: random.Random, load: Load) -> "_Wanted":
        return cls(
            rows=load.largest if rng.random() < load.large else rng.choice(load.sizes),
            suppressing=rng.random() < load.suppressing,
            rolled_back=rng.random() < load.rolled_back,
            partly_rolled_back=rng.random() < load.partly_rolled_back,
            lasting=rng.random() < load.lasting,
            asynchronous=rng.random() < load.asynchronous,
        )


async def _write(connection: Any, rng: random.Random, keys: Sequence[str], rows: int) -> list[UUID]:
    """At least one row of each key; their ids."""
    counts = [max(1, rows // len(keys))] * len(keys)
    filling = rng.choice((10, 100, 100, 400))
    found = await connection.fetch(WRITE, list(keys), counts, rng.choice(AGGREGATES), filling)
    return [row[0] for row in found]


async def _suppress(connection: Any, rng: random.Random, recipients: int) -> None:
    """Through the triggers: suppressed, lifted, changed; sometimes a part is undone."""
    keys = sorted(_key("r", n) for n in rng.sample(range(recipients), rng.choice((1, 1, 1, 3))))
    if rng.random() < 0.1:
        part = connection.transaction()
        await part.start()
        await connection.execute(_ADD, keys, "soft-bounces", "undone")
        await part.rollback()
    evidence = f"e{rng.randrange(1_000_000)}"
    match rng.randrange(4):
        case 0:
            await connection.execute(_LIFT, keys)
        case 1:
            await connection.execute(_AGAIN, keys, evidence)
        case _:
            await connection.execute(_ADD, keys, rng.choice(REASONS), evidence)


def _key(kind: str, number: int) -> str:
    """As a recipient's key looks."""
    return hashlib.md5(f"{kind}-{number}".encode(), usedforsecurity=False).hexdigest()


# Of a row behind all others.
LAST_KEY: Final = _key("last", 0)
