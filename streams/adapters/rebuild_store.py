"""The scratch tables of a rebuild, their comparison with the live ones, and the live ones where they are mended.

The scratch tables are temporary: they die with their session, whatever happens, and no trigger of the feed is on them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

from streams.adapters.facts_store import REFUSALS, EvidenceStore, FactsStore, transact
from streams.adapters.facts_transaction import (
    FactsTransaction,
    event_of,
    lock_recipients,
    placed_of,
)
from streams.adapters.postgres import Connection, Database
from streams.adapters.queries import query
from streams.adapters.suppression_rows import SuppressionRows
from streams.domain.addresses import RecipientKey
from streams.domain.errors import BadMessage
from streams.domain.facts import (
    Placed,
    RecipientOutcome,
    RecipientState,
    Settled,
    UnmatchedPage,
)
from streams.domain.lifts import Lift, Lifts
from streams.domain.rebuilding import Comparison, Difference, Table, What

T = TypeVar("T")

# One session that sorts and joins whole tables: the planner has to see their sizes.
PLANNER: Final = {
    "temp_buffers": "64MB",
    "work_mem": "64MB",
    "plan_cache_mode": "auto",
    "application_name": "mailstreams rebuild",
}
_COMPARE: Final = {
    Table.EVENTS: "compare_events",
    Table.OUTCOMES: "compare_outcomes",
    Table.STATES: "compare_states",
    Table.SUPPRESSIONS: "compare_suppressions",
}
_PAGE: Final = 1000


@asynccontextmanager
async def scratch_on(database: Database) -> AsyncIterator["ScratchStore"]:
    """Scratch tables for as long as the block lasts."""
    async with database.connection() as connection:
        made = ScratchStore(connection)
        try:
            yield made
        finally:
            await made.drop()


class ScratchStore:
    """begin(), any number of transact(), finish(), any number of compare()."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def begin(self) -> None:
        """Takes the time, then makes the tables. What the live facts take in after this time may not be in the topic's past."""
        await self._connection.execute(query("make_scratch"))

    async def transact(self, work: Callable[[FactsTransaction], Awaitable[T]]) -> T:
        """Runs work in one transaction and commits. BadMessage: a value can never be kept."""
        try:
            async with self._connection.transaction():
                return await work(ScratchTransaction(self._connection))
        except REFUSALS as error:
            raise BadMessage(f"PostgreSQL refuses it: {type(error).__name__}") from error

    async def unmatched(self, *, after: datetime, before: datetime, limit: int) -> UnmatchedPage:
        """Kept events without a message that were received in this span, oldest first, at most so many."""
        rows = await self._connection.fetch(query("find_unmatched_events"), after, before, limit)
        return UnmatchedPage(
            examined=len(rows),
            last_received=rows[-1]["received"] if rows else None,
            events=[event_of(row) for row in rows if row["payload"] is not None],
        )

    async def finish(self) -> None:
        """Nothing is folded any more: the comparison may begin."""
        await self._connection.execute(query("finish_scratch"))

    async def compare(self, comparison: Comparison) -> int:
        """Compares with the live tables as they are now; how many recipients are left out since new events reached them."""
        # One snapshot, so that a fold that commits in between is seen in all tables or in none.
        async with self._connection.transaction(isolation="repeatable_read"):
            await self._connection.execute(query("find_reached_meanwhile"))
            counts = await self._connection.fetchrow(query("count_rebuilt"))
            for table, name in _COMPARE.items():
                if counts is not None:
                    comparison.tables[table].rebuilt = counts[table.value]
                async for row in self._connection.cursor(query(name), prefetch=_PAGE):
                    comparison.take(
                        Difference(
                            table=table,
                            what=What(row["what"]),
                            recipient_key=RecipientKey(row["recipient_key"]),
                            since=row["since"],
                            row=row["row"],
                        )
                    )
        return 0 if counts is None else int(counts["meanwhile"])

    async def states(self, keys: Sequence[RecipientKey]) -> Sequence[RecipientState]:
        """As they were rebuilt."""
        rows = await self._connection.fetch(query("read_rebuilt_states"), keys)
        return [RecipientState(**row) for row in rows]

    async def drop(self) -> None:
        """The pool may give the session to somebody else."""
        if not self._connection.is_closed():
            await self._connection.execute("DISCARD TEMP")


class ScratchTransaction(FactsTransaction):
    """The statements of the fold on the scratch tables; what would reach live tables is left out."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.suppressions = ScratchSuppressionRows(connection)

    async def remember_attempts(self, forgotten: Sequence[Placed]) -> None:
        """The live facts remember them."""

    async def settle(self, outbox_ids: Sequence[UUID]) -> Settled:  # noqa: ARG002
        """Settled is what happened once, not what is told again."""
        return Settled()


class ScratchSuppressionRows(SuppressionRows):
    """The lifts are the live ones; nothing has to be locked, since nobody else sees these tables."""

    async def lock(self, keys: Collection[RecipientKey]) -> Lifts:
        rows = await self._connection.fetch(query("read_lifts"), sorted(keys))
        return Lifts(Lift(**row) for row in rows)


class LiveFactsStore(FactsStore):
    """The live tables, where they are mended. Uses a pool that is started."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.evidence = EvidenceStore(database)

    async def transact_outcomes(
        self, rows: Sequence[Difference], work: Callable[["OutcomePage"], Awaitable[None]]
    ) -> None:
        """Runs work on the outcomes that these rows name; from its start again after a deadlock."""
        await transact(self._database, lambda connection: work(OutcomePage(connection, rows)))


class OutcomePage:
    """The outcomes of some messages and recipients within one transaction."""

    def __init__(self, connection: Connection, rows: Sequence[Difference]) -> None:
        self._connection = connection
        self._columns = [UUID(one.row) for one in rows], [one.recipient_key for one in rows]

    async def lock(self) -> Sequence[Placed]:
        """Locks the recipients as the fold does, and returns the stored events of these messages."""
        scopes = await self._connection.fetch(query("find_message_scopes"), *self._columns)
        await lock_recipients(
            self._connection,
            sorted((row["tenant"], RecipientKey(row["recipient_key"])) for row in scopes),
        )
        rows = await self._connection.fetch(query("find_message_events"), *self._columns)
        return [placed_of(row) for row in rows]

    async def replace(self, outcomes: Sequence[RecipientOutcome]) -> None:
        """Sets these to exactly this."""
        messages = [o.outbox_id for o in outcomes], [o.recipient_key for o in outcomes]
        await self._connection.execute(query("delete_outcomes"), *messages)
        await FactsTransaction(self._connection).merge_outcomes(outcomes)
