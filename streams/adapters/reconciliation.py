"""Walks the calls in PostgreSQL by their ids, which are ordered by time, a page a statement."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

from streams.adapters.postgres import Database
from streams.domain.reconciling import Day, Intake, Span
from streams.domain.schedule import first_id_of

Row = dict[str, Any]
PAGE: Final = 5000


class Reconciliation:
    """Uses a pool that is started; changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def days(self, span: Span) -> AsyncIterator[tuple[UUID, list[Day]]]:
        """Page by page: the last id that was looked at, and what was counted."""
        at, end = first_id_of(span.start), first_id_of(span.end)
        while rows := await self._database.rows("measure_silent", at, end, PAGE):
            at = UUID(bytes=rows[0]["last"].bytes)
            yield (
                at,
                [
                    Day(day=row["day"], accepted=row["accepted"], silent=row["silent"])
                    for row in rows
                ],
            )

    async def messages(self, span: Span, *, after: UUID | None, limit: int) -> list[Row]:
        """The first messages of which nothing is known, in the order of their calls."""
        at, end = after or first_id_of(span.start), first_id_of(span.end)
        found: list[Row] = []
        while len(found) < limit:
            rows = await self._database.rows("list_silent", at, end, PAGE)
            if not rows:
                break
            at = rows[-1]["attempt_id"]
            found += [dict(row) for row in rows[:-1]]
        return [
            row | {k: str(row[k]) for k in ("attempt_id", "outbox_id")} for row in found[:limit]
        ]

    async def intake(self, day: Day) -> Intake:
        """Of that day and the next one."""
        start = datetime.combine(day.day, time(), UTC)
        (row,) = await self._database.rows("measure_intake", start, start + timedelta(days=2))
        return Intake(unmatched=row["unmatched"], trouble=row["trouble"])
