"""What an operator does with pauses in PostgreSQL: each method one transaction."""

from typing import Any, Final

from streams.adapters.postgres import Database
from streams.domain.by_hand import Decision
from streams.domain.pauses import AUTOMATIC, End, Stopped

Row = dict[str, Any]
# What wakes up at once after a pause; the others come within half a minute, so that nothing bursts.
WOKEN: Final = 1000


class PauseAdmin:
    """Uses a pool that is started. Every claim of every sender honours what is committed here."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def pauses(self) -> list[Row]:
        """Those in force."""
        return [dict(row) for row in await self._database.rows("list_pauses")]

    async def pause(self, what: Stopped, who: Decision, end: End, *, replace: bool) -> Row | None:
        """The pause as it is now; None, and nothing is changed, where a person has made one already."""
        rows = await self._database.rows(
            "pause_mail",
            *(what.scope, what.value, who.by_whom, who.why, end.until, end.after),
            *(list(AUTOMATIC), replace),
        )
        return dict(rows[0]) if rows else None

    async def resume(self, what: Stopped, who: Decision, *, automatic: bool) -> list[Row]:
        """The pauses that there were, each with whether it is lifted."""
        rows = await self._database.rows(
            "resume_mail",
            *(what.scope, what.value, who.by_whom, who.why, list(AUTOMATIC), automatic, WOKEN),
        )
        return [dict(row) for row in rows]
