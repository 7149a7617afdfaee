"""Whether tables level off: mail is inserted, claimed, recorded, emptied and removed at a steady rate, with ages of seconds.

By the statements of sender and scheduler, on one PostgreSQL, without Kafka: what is shown is the upkeep of the tables.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import devservers
from benchmarks import machine
from benchmarks.claims_stand import SALT, token
from devservers.settings import ServerSettings
from streams.adapters.migrations import migrate
from streams.adapters.outbox_store import PLANNER, OutboxStore
from streams.adapters.postgres import Database
from streams.adapters.upkeep_store import UpkeepStore
from streams.domain.attempts import ClaimRequest, Outcome, OutcomeKind
from streams.domain.upkeep import Kept
from streams.scheduling.retention import Retention

NAME: Final = "soak"
BATCH: Final = 100
# The bootstrap transaction, visible to every snapshot.
VISIBLE_XID: Final = 3
KEEP: Final = Kept(
    feed=timedelta(seconds=30),
    contents=timedelta(seconds=10),
    messages=timedelta(seconds=30),
    events=timedelta(seconds=30),
    quiet=timedelta(seconds=5),
)
INSERT: Final = """INSERT INTO email_outbox (recipient, sender, subject, text)
  SELECT 'user' || n || '@example.com', 'shop@example.com', 'Hello', repeat(md5(n::text || clock_timestamp()), 60) FROM generate_series(1, $1::int) AS n
  RETURNING id"""
SIZES: Final = """SELECT pg_total_relation_size('email_outbox')::bigint AS outbox, pg_indexes_size('email_outbox')::bigint AS outbox_indexes,
  pg_total_relation_size('email_attempt')::bigint AS attempts,
  (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'email_outbox') AS dead,
  (SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'email_outbox') AS hot,
  (SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'email_outbox') AS updates,
  (SELECT count(*) FROM email_outbox) AS messages"""


def run(*, quick: bool, minutes: float = 10.0) -> dict[str, Any]:
    """The numbers; a sample is told every tenth of the time."""
    return asyncio.run(_run(0.1 if quick else minutes, quick=quick))


def say(line: str) -> None:
    print(line, flush=True)


async def _run(minutes: float, *, quick: bool) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        servers = stack.enter_context(devservers.running(ServerSettings(kafka=False)))
        name = f"soak_{time.time_ns()}"
        dsn = servers.postgres.create_database(name)
        stack.callback(servers.postgres.drop_database, name)
        database = await stack.enter_async_context(
            Database(dsn, pool_size=6, timeout_s=60, name="soak", server_settings=PLANNER)
        )
        await migrate(database, salt=SALT, slot=None)
        soak = Soak(database, ends=time.monotonic() + minutes * 60)
        duties = soak.retention
        loops = [soak.send()]
        loops += [
            soak.repeat(d) for d in (duties.purge_contents, duties.purge_messages, soak.empty_feed)
        ]
        await asyncio.gather(*loops, soak.sample(every_s=minutes * 6))
    return {
        "benchmark": NAME,
        "quick": quick,
        "minutes": minutes,
        "sent": soak.sent,
        "longest_insert_ms": round(soak.longest_insert_s * 1000, 1),
        "longest_claim_ms": round(soak.longest_claim_s * 1000, 1),
        "longest_claim_after_s": round(soak.longest_claim_at_s, 1),
        "samples": soak.samples,
        **machine.description(),
    }


class Soak:
    """Sends and removes until its end."""

    def __init__(self, database: Database, *, ends: float) -> None:
        self._database = database
        self._ends = ends
        self._store = OutboxStore(database, max_attempts=3)
        self.retention = Retention(
            UpkeepStore(database, slot="none"), KEEP, turn_every=timedelta(seconds=1)
        )
        self.sent = 0
        self._begun = time.monotonic()
        self.longest_insert_s = self.longest_claim_s = self.longest_claim_at_s = 0.0
        self.samples: list[dict[str, Any]] = []

    @property
    def _over(self) -> bool:
        return time.monotonic() >= self._ends

    async def repeat(self, duty: Callable[[], Awaitable[float]]) -> None:
        while not self._over:
            pause_s = await duty()
            await asyncio.sleep(pause_s)

    async def send(self) -> None:
        """One batch after the other, at most ten a second."""
        while not self._over:
            begun = time.monotonic()
            async with self._database.connection() as connection:
                ids = [row["id"] for row in await connection.fetch(INSERT, BATCH)]
            asked = time.monotonic()
            self.longest_insert_s = max(self.longest_insert_s, asked - begun)
            requests = [ClaimRequest(id=i, attempt_id=token(), xid=VISIBLE_XID) for i in ids]
            claims = await self._store.claim(requests, lease_s=60)
            self._told(time.monotonic() - asked)
            now = datetime.now(UTC)
            await self._store.record(
                [
                    Outcome(
                        id=c.email.id,
                        attempt_id=c.email.attempt_id,
                        number=c.email.attempt,
                        kind=OutcomeKind.ACCEPTED,
                        started=now,
                        finished=now,
                        provider_message_id=str(c.email.id),
                    )
                    for c in claims
                    if c.email is not None
                ]
            )
            self.sent += len(ids)
            await asyncio.sleep(max(0.0, begun + 0.1 - time.monotonic()))

    def _told(self, claim_s: float) -> None:
        if claim_s > self.longest_claim_s:
            self.longest_claim_s = claim_s
            self.longest_claim_at_s = time.monotonic() - self._begun

    async def empty_feed(self) -> float:
        """In the place of the relay in polling mode."""
        async with self._database.connection() as connection:
            await connection.execute("DELETE FROM outbox_feed")
        return 1.0

    async def sample(self, *, every_s: float) -> None:
        begun = time.monotonic()
        while not self._over:
            await asyncio.sleep(every_s)
            async with self._database.connection() as connection:
                row = dict((await connection.fetchrow(SIZES)) or {})
            hot, updates = row.pop("hot"), row.pop("updates")
            row |= {
                "s": round(time.monotonic() - begun),
                "hot_share": round(hot / max(updates, 1), 3),
            }
            self.samples.append(row)
            say(", ".join(f"{name} {value}" for name, value in row.items()))
