"""What an operator does with messages in PostgreSQL: each method one transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.by_hand import Decision, LetterFilter, Page, Redrive
from streams.domain.facts import PROOF_OF_ACCEPTANCE

Row = dict[str, Any]
PROOF: Final = sorted(PROOF_OF_ACCEPTANCE)


class OutboxAdmin:
    """Uses a pool that is started. Ids are text and times are as PostgreSQL has them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ambiguous(
        self, page: Page, *, tenant: str | None = None, older_than: timedelta = timedelta()
    ) -> list[Row]:
        """Calls of unknown outcome that nobody has decided."""
        return _plain(
            await self._database.rows("list_ambiguous", page.after, tenant, older_than, page.limit)
        )

    async def settle(
        self, ids: Sequence[UUID], decision: Decision, *, accepted: bool, dry_run: bool = False
    ) -> list[Row]:
        """Each row as the evidence says, else as the person does."""
        distinct = sorted(set(ids))
        async with self._database.transaction() as connection:
            if not dry_run:
                await connection.fetch(query("settle_ambiguous"), distinct, PROOF)
            rows = await connection.fetch(
                query("decide_ambiguous"),
                *(distinct, accepted, decision.by_whom, decision.why, dry_run, PROOF),
            )
        return _plain(rows)

    async def duplicates(
        self, page: Page, *, tenant: str | None = None, proven: bool | None = None
    ) -> list[Row]:
        """Messages that SES may have taken twice, or has, with their calls."""
        rows = _plain(
            await self._database.rows("list_duplicates", page.after, tenant, proven, page.limit)
        )
        return [row | {"calls": orjson.loads(row["calls"] or "[]")} for row in rows]

    async def dead_letter_groups(self, which: LetterFilter, *, limit: int) -> list[Row]:
        """Dead letters by class and reason, the most frequent first."""
        return _plain(
            await self._database.rows(
                "group_dead_letters",
                *(which.class_, which.reason, which.tenant, which.lane, limit),
            )
        )

    async def dead_letters(self, which: LetterFilter, page: Page) -> list[Row]:
        """Dead letters one by one, with what their rows are now."""
        ids = None if which.outbox_ids is None else list(which.outbox_ids)
        return _plain(
            await self._database.rows(
                "list_dead_letters",
                *(page.after, which.class_, which.reason, which.tenant, which.lane),
                *(ids, page.limit),
            )
        )

    async def redrive(
        self, letters: Sequence[UUID], how: Redrive, decision: Decision, *, start: datetime | None
    ) -> list[Row]:
        """Each letter's row gets another life, due from start on, or is left with the reason why."""
        rows = await self._database.rows(
            "redrive_dead_letters",
            *(list(letters), PROOF, how.held, how.live, how.per_second, start),
            *(decision.by_whom, decision.why, how.dry_run),
        )
        return _plain(rows)

    async def cancel(self, ids: Sequence[UUID], decision: Decision) -> list[Row]:
        """Each row is cancelled if it still can be; no lock is waited for."""
        rows = await self._database.rows(
            "cancel_emails", sorted(set(ids)), decision.by_whom, decision.why
        )
        return _plain(rows)


def _plain(rows: Iterable[Any]) -> list[Row]:
    return [{n: str(v) if isinstance(v, UUID) else v for n, v in row.items()} for row in rows]
