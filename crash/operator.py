"""The person of policy `hold`: settles by hand what SES never took, once it can never take it."""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from crash.system import LEASE_S, SIGNATURE_S, System
from streams.adapters.outbox_admin import OutboxAdmin
from streams.adapters.postgres import Database
from streams.domain.by_hand import Decision, Settling
from streams.domain.errors import Unavailable

# After the claim: signed within its lease, sent while the signature lasts, thought about by SES for a moment.
SURELY_OVER_S: Final = LEASE_S + SIGNATURE_S + 1.5
_DECISION: Final = Decision(by_whom="crash harness", why="the ledger of SES has no such call")
# Rows whose every open call began long ago.
_OPEN: Final = (
    "SELECT u.outbox_id, array_agg(u.attempt_id) AS attempts FROM email_unsettled AS u "
    "JOIN email_attempt AS a ON a.id = u.attempt_id JOIN email_outbox AS o ON o.id = u.outbox_id "
    "WHERE o.state = 'ambiguous' GROUP BY u.outbox_id "
    "HAVING max(coalesce(a.started, a.finished)) < clock_timestamp() - make_interval(secs => $1)"
)


class Operator:
    """Looks again and again, through the command's own function."""

    def __init__(self, system: System) -> None:
        self.settled: set[str] = set()
        self._system = system
        self._accepted: set[str] = set()
        self._seen = 0

    async def look(self) -> None:
        """Settles what there is."""
        rows = await self._system.database.fetch(_OPEN, SURELY_OVER_S)
        if not rows:
            return
        await self._read_ledger()
        never: list[UUID] = [
            r["outbox_id"] for r in rows if not {str(a) for a in r["attempts"]} & self._accepted
        ]
        if never:
            await self._settle(never)

    async def _settle(self, outbox_ids: list[UUID]) -> None:
        async with Database(
            self._system.dsn, pool_size=1, timeout_s=10, name="crash harness"
        ) as database:
            decided = await OutboxAdmin(database).settle(outbox_ids, _DECISION, accepted=False)
        moved = (Settling.PENDING, Settling.EXPIRED)
        self.settled.update(row["outbox_id"] for row in decided if row["outcome"] in moved)

    async def _read_ledger(self) -> None:
        for call in await self._system.ledger(self._seen):
            self._seen = call["sequence"]
            if call["attempt"]:
                self._accepted.add(call["attempt"])

    async def run(self, errors: Sequence[type[Exception]]) -> None:
        """Until cancelled; while PostgreSQL is away there is nothing to settle."""
        away: tuple[type[Exception], ...] = (*errors, Unavailable)
        while True:
            await asyncio.sleep(1.0)
            try:
                await self.look()
            except away:
                await asyncio.sleep(0.5)
