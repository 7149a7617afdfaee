"""The facts of recipients in PostgreSQL: one transaction a batch of events, and the stored evidence page by page."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

import asyncpg

from streams.adapters.evidence_page import EvidencePage
from streams.adapters.facts_transaction import FactsTransaction, event_of
from streams.adapters.postgres import Connection, Database
from streams.domain.addresses import RecipientKey
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.facts import UnmatchedPage
from streams.domain.reclassification import Evidence
from streams.runtime import metrics

log = logging.getLogger(__name__)
T = TypeVar("T")

# For the pool of whoever folds: its statements read by key only. A plan that was cached while a table was empty must not read
# the whole of it later.
PLANNER: Final = {"enable_seqscan": "off", "enable_mergejoin": "off"}
_TRIES: Final = 6
# What the server says of a value that it will never take; too long for an index is the third.
REFUSALS: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
)


class FactsStore:
    """Owns its pool: start() connects, stop() closes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        await self._database.stop()

    async def transact(self, work: Callable[[FactsTransaction], Awaitable[T]]) -> T:
        """Runs work in one transaction and commits; again from its start after a deadlock or a serialisation failure.

        BadMessage if PostgreSQL refuses a value, which no repetition mends.
        """
        return await transact(self._database, lambda c: work(FactsTransaction(c)))

    async def unmatched(self, *, after: datetime, before: datetime, limit: int) -> UnmatchedPage:
        """Kept events without a message that were received in this span, oldest first, at most so many."""
        rows = await self._database.rows("find_unmatched_events", after, before, limit)
        return UnmatchedPage(
            examined=len(rows),
            last_received=rows[-1]["received"] if rows else None,
            events=[event_of(row) for row in rows if row["payload"] is not None],
        )

    async def count_unmatched(self, *, after: datetime) -> int:
        """How many events were kept since then and have no message."""
        return int(await self._database.value("count_unmatched", after))


class EvidenceStore:
    """The stored evidence, page by page in the order of the recipient keys. Does not own the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, *, after: RecipientKey | None, limit: int) -> Sequence[RecipientKey]:
        """The next recipients of whom there is evidence."""
        rows = await self._database.rows("find_evidence_keys", after or "", limit)
        return [RecipientKey(row["recipient_key"]) for row in rows]

    async def read(self, keys: Sequence[RecipientKey]) -> Sequence[Evidence]:
        """All evidence of these recipients, as it is at this moment."""
        async with self._database.transaction() as connection:
            return await EvidencePage(connection, keys).read()

    async def transact(
        self, keys: Sequence[RecipientKey], work: Callable[[EvidencePage], Awaitable[T]]
    ) -> T:
        """Runs work on these recipients in one transaction that may write; from its start again after a deadlock."""
        return await transact(self._database, lambda c: work(EvidencePage(c, keys)))


async def transact(database: Database, work: Callable[[Connection], Awaitable[T]]) -> T:
    for again in range(1, _TRIES + 1):
        try:
            async with database.transaction() as connection:
                return await work(connection)
        except REFUSALS as error:
            raise BadMessage(f"PostgreSQL refuses it: {type(error).__name__}") from error
        except Unavailable as error:
            if _is_refused_argument(error.__cause__):
                raise BadMessage("a value has a type that PostgreSQL refuses") from error
            if not _is_conflict(error.__cause__) or again == _TRIES:
                raise
            metrics.FOLD_CONFLICTS.inc()
            log.info("fold is tried again", extra={"action": "fold.conflict", "again": again})
            await asyncio.sleep(0.01 * 2**again * random.random())  # noqa: S311 jitter
    raise AssertionError("unreachable")


def _is_conflict(error: BaseException | None) -> bool:
    return isinstance(error, (asyncpg.DeadlockDetectedError, asyncpg.SerializationError))


def _is_refused_argument(error: BaseException | None) -> bool:
    """asyncpg's own refusal of an argument; its name is taken by an error of the server."""
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
