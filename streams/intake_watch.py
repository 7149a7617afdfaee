"""What a stage of the intake tells of its own watch, so that the silence about a call can be known to be one."""

import asyncio
import logging
from typing import Final

from streams.domain.errors import Misconfigured, Unavailable
from streams.ports.intake_watch import WatchLog
from streams.runtime import metrics

log = logging.getLogger(__name__)

REPORT_EVERY_S: Final = 5.0


class IntakeWatch:
    """Collects trouble and reports every few seconds. What cannot be reported now is reported later, and holds up nothing:
    the intake works without PostgreSQL, and where it has no way to it at all."""

    def __init__(self, watch_log: WatchLog, *, stage: str) -> None:
        self._log = watch_log
        self._stage = stage
        self._trouble: str | None = None
        self._ended = False
        self._writing = asyncio.Lock()
        for outcome in ("written", "failed"):
            metrics.INTAKE_REPORTS.labels(stage=stage, outcome=outcome)

    def trouble(self, kind: str) -> None:
        """An event may have been lost, or be late."""
        self._trouble = kind

    async def report(self) -> float:
        """A duty of the stage."""
        async with self._writing:
            if not self._ended:
                await self._write(ended=False)
        return REPORT_EVERY_S

    async def stop(self) -> None:
        """The last report; after it nothing is taken in."""
        async with self._writing:
            self._ended = True
            await self._write(ended=True)
            await self._log.stop()

    async def _write(self, *, ended: bool) -> None:
        told, self._trouble = self._trouble, None
        try:
            await self._log.start()
            await self._log.report(trouble=told, ended=ended)
        except (Unavailable, Misconfigured) as error:
            self._trouble = self._trouble or told
            metrics.INTAKE_REPORTS.labels(stage=self._stage, outcome="failed").inc()
            log.info(
                "the watch of the intake could not be written down",
                extra={"action": "watch.not_reported", "error": str(error)},
            )
        else:
            metrics.INTAKE_REPORTS.labels(stage=self._stage, outcome="written").inc()
