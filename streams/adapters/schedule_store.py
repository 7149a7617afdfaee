"""What the scheduler reads and writes in PostgreSQL: each method one statement, safe beside other replicas."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.errors import Unavailable
from streams.domain.facts import PROOF_OF_ACCEPTANCE, Settled
from streams.domain.schedule import (
    Backlog,
    Expired,
    OldestPending,
    Resending,
    Resent,
    Swept,
    TakenDue,
    UnsettledPage,
)
from streams.domain.topics import Lane

PROOF: Final = sorted(PROOF_OF_ACCEPTANCE)


class ScheduleStore:
    """Owns its pool: start() connects, stop() closes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        await self._database.stop()

    async def take_duty(self, name: str, every: timedelta) -> bool:
        """Whether this replica does it this time."""
        return await self._database.value("take_duty", name, every) is True

    async def take_due(self, limit: int) -> TakenDue:
        """Moves what is due into the feed; what turns out to be taken by SES is settled instead."""
        (row,) = await self._database.rows("take_due", limit, PROOF)
        settled = await self.settle(row["evident"]) if row["evident"] else Settled()
        return TakenDue(
            taken=row["taken"], pointers=row["pointers"], expired=row["expired"], settled=settled
        )

    async def expire_leases(self, limit: int) -> Expired:
        """Turns what ran out into ambiguous, and settles at once what there is evidence of."""
        async with self._database.transaction() as connection:
            rows = await connection.fetch(query("expire_leases"), limit)
            ids = [row["id"] for row in rows]
            settled = await connection.fetch(query("settle_ambiguous"), ids, PROOF) if ids else []
        return Expired(leases=len(ids), settled=Settled(**settled[0]) if settled else Settled())

    async def unsettled(self, *, after: UUID, limit: int) -> UnsettledPage:
        """Attempts of unknown outcome in the order of their ids."""
        rows = await self._database.rows("find_unsettled", after, limit)
        return UnsettledPage(
            last=rows[-1]["attempt_id"] if len(rows) == limit else None,
            outbox_ids=sorted({row["outbox_id"] for row in rows}),
        )

    async def settle(self, outbox_ids: Sequence[UUID]) -> Settled:
        """Settles rows by the evidence that there is."""
        (row,) = await self._database.rows("settle_ambiguous", outbox_ids, PROOF)
        return Settled(**row)

    async def hold_ambiguous(self, *, after: timedelta, limit: int) -> int:
        """Gives what stayed ambiguous for so long to a person; how many rows."""
        return int(await self._database.value("hold_ambiguous", after, limit))

    async def resend_ambiguous(self, rule: Resending, *, limit: int) -> Resent:
        """Puts back to pending what its policy says; each is written down as a possible duplicate."""
        (row,) = await self._database.rows(
            "resend_ambiguous",
            *(rule.after, rule.when_silent_after, rule.most_attempts, PROOF, rule.longest_break),
            limit,
        )
        return Resent(**row)

    async def sweep_pending(self, name: str, *, age: timedelta, limit: int) -> Swept:
        """Wakes rows of this age that are pending and wait nowhere."""
        (row,) = await self._database.rows("sweep_pending", name, age, limit)
        return Swept(**row)

    async def make_duty(self, name: str) -> None:
        await self._database.rows("insert_duty", name)

    async def beat(self, keys: Sequence[str], *, every: timedelta) -> bool:
        """Puts the heartbeats into the feed, if it is this replica's turn."""
        return int(await self._database.value("insert_heartbeats", keys, every)) > 0

    async def expire_suppressions(self, limit: int) -> int:
        """Removes what is over; how many rows."""
        return int(await self._database.value("expire_suppressions", limit))

    async def forget_watches(self, older_than: timedelta) -> int:
        """Removes watches of intake processes that are long gone; how many."""
        return int(await self._database.value("forget_watches", older_than))

    async def make_feed_partitions(self, days_ahead: int) -> int | None:
        """How many were made; None if the feed was too busy for it."""
        try:
            return int(await self._database.value("make_feed_partitions", days_ahead))
        except Unavailable as error:
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                return None
            raise
        except (asyncpg.DuplicateTableError, asyncpg.UniqueViolationError):
            # A migration makes them at the same time.
            return None

    async def set_rate(self, scope: str, per_second: float) -> None:
        await self._database.rows("set_send_rate", scope, per_second)

    async def pause_account(self, value: str, *, reason: str, who: str, lasting: timedelta) -> bool:
        """Pauses the account, or keeps it paused; whether that is new."""
        return await self._database.value("pause_account", value, reason, who, lasting) is True

    async def resume_account(self, value: str, *, who: str) -> bool:
        """Lifts that pause; whether there was one."""
        return await self._database.value("resume_account", value, who) is True

    async def backlog(self, *, heartbeats_every: timedelta) -> Backlog:
        """What waits now."""
        (row,) = await self._database.rows("measure_backlog", heartbeats_every)
        return Backlog(**row)

    async def oldest_pending(self, lane: Lane, *, start: UUID, limit: int) -> OldestPending | None:
        """The oldest pending row among the next ones from this id, or where the search goes on; None if there is no row."""
        rows = await self._database.rows("find_oldest_pending", lane.value, start, limit)
        return OldestPending(**rows[0]) if rows else None
