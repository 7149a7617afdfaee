"""The watch of one process of the intake, in table intake_watch."""

from datetime import timedelta
from uuid import UUID

from streams.adapters.postgres import Database
from streams.domain.schedule import LONGEST_BREAK


class IntakeWatchLog:
    """Owns its pool: start() connects, stop() closes."""

    def __init__(
        self, database: Database, *, stage: str, process: UUID, longest: timedelta = LONGEST_BREAK
    ) -> None:
        self._database = database
        self._stage = stage
        self._process = process
        self._longest = longest

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        await self._database.stop()

    async def report(self, *, trouble: str | None, ended: bool) -> None:
        """It has watched until now."""
        await self._database.rows(
            "report_intake", self._process, self._stage, trouble, self._longest, ended
        )
