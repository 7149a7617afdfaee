"""The person of policy `hold`: settles by hand what SES never took, once it can never take it."""

import asyncio
from typing import Final
from uuid import UUID

from crash.system import LEASE_S, SIGNATURE_S, System

# After the claim: signed within its lease, sent while the signature lasts, thought about by SES for a moment.
SURELY_OVER_S: Final = LEASE_S + SIGNATURE_S + 1.5
_OPEN: Final = (
    "SELECT a.id FROM email_unsettled AS u JOIN email_attempt AS a ON a.id = u.attempt_id "
    "WHERE a.outcome = 'unknown' AND coalesce(a.started, a.finished) < clock_timestamp() - make_interval(secs => $1)"
)
# Until there is a command for it. It says of an attempt that SES refused it; the scheduler does the rest.
_SETTLE: Final = (
    "UPDATE email_attempt SET outcome = 'retry', error_class = 'settled-by-hand', reason = 'SES did not take it: settled by hand' "
    "WHERE id = ANY ($1::uuid[]) AND outcome = 'unknown' RETURNING id"
)


class Operator:
    """Looks again and again."""

    def __init__(self, system: System) -> None:
        self.settled: set[str] = set()
        self._system = system
        self._accepted: set[str] = set()
        self._seen = 0

    async def look(self) -> int:
        """Settles what there is; how many."""
        database = self._system.database
        attempts = [r["id"] for r in await database.fetch(_OPEN, SURELY_OVER_S)]
        if not attempts:
            return 0
        await self._read_ledger()
        never: list[UUID] = [a for a in attempts if str(a) not in self._accepted]
        if never:
            settled = await database.fetch(_SETTLE, never)
            self.settled.update(str(row["id"]) for row in settled)
        return len(never)

    async def _read_ledger(self) -> None:
        for call in await self._system.ledger(self._seen):
            self._seen = call["sequence"]
            if call["attempt"]:
                self._accepted.add(call["attempt"])

    async def run(self, errors: tuple[type[Exception], ...]) -> None:
        """Until cancelled; while PostgreSQL is away there is nothing to settle."""
        while True:
            await asyncio.sleep(1.0)
            try:
                await self.look()
            except errors:
                await asyncio.sleep(0.5)
