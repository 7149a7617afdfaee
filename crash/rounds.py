"""One round: load and disturbances at the same time, then quiet, then the verdict."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from crash.chaos import Chaos, faults_of
from crash.gathering import Books
from crash.load import Load, LoadClock
from crash.operator import Operator
from crash.scenario import Scenario
from crash.system import System
from crash.verdict import Evidence, Verdict, judge

QUIET_S: Final = 120.0
# So many rows that could be sent may wait before the application is held back.
_MOST_WAITING: Final = 400
_WAITING: Final = "SELECT count(*) FROM email_outbox WHERE id >= $1 AND state IN ('pending', 'sending') AND (send_after IS NULL OR send_after < now())"
_BROKEN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)  # fmt: skip
_OPEN: Final = (
    "SELECT count(*) FILTER (WHERE state = 'pending') AS pending, count(*) FILTER (WHERE state = 'sending') AS sending, "
    "count(*) FILTER (WHERE state = 'ambiguous') AS ambiguous FROM email_outbox WHERE id >= $1"
)
# Rows that wait, and everything by which they could be woken.
_ASLEEP: Final = "SELECT count(*) FROM email_outbox AS o WHERE o.id >= $1 AND o.state = 'pending' AND NOT EXISTS (SELECT FROM email_due AS d WHERE d.id = o.id)"
# A pending row without a wake-up whose pointer has not come after so long has been lost.
_ASLEEP_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round did and what was found. stopped: why it was not waited for any longer, if it was not."""

    scenario: Scenario
    verdict: Verdict
    evidence: Evidence
    counts: dict[str, int]
    points: dict[str, int]
    kills: int
    seconds: float
    log: list[str]
    stopped: str | None


class Rounds:
    """Rounds of one system, one after the other."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._books = Books(system)

    async def run(self, scenario: Scenario) -> Round:
        started = time.monotonic()
        system = self._system
        first = await self._books.begin()
        await system.control("faults", faults=faults_of(scenario))
        operator = Operator(system)
        clock = LoadClock(lambda: self._backlog(first), most=_MOST_WAITING)
        chaos = Chaos(system, scenario, clock)
        load = Load(scenario, system.database, clock)
        settling = asyncio.create_task(operator.run(_BROKEN))
        try:
            await asyncio.gather(load.run(), chaos.run(), clock.run())
            await system.control("faults", faults=[])
            stopped = await self._quiet(first)
        finally:
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)
        evidence = await self._books.gather(
            first,
            load.known,
            settled_by_hand=frozenset(operator.settled),
            outages=chaos.outages,
        )
        return Round(
            scenario=scenario,
            verdict=judge(evidence),
            evidence=evidence,
            counts=dict(chaos.counts),
            points=dict(chaos.points),
            kills=chaos.kills,
            seconds=time.monotonic() - started,
            log=chaos.log,
            stopped=stopped,
        )

    async def _backlog(self, first: UUID) -> int:
        return int(await self._system.database.fetchval(_WAITING, first))

    async def _quiet(self, first: UUID) -> str | None:
        """Waits until everything has ended; why not, if it never will."""
        deadline = time.monotonic() + QUIET_S
        asleep_since: float | None = None
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            found = await self._system.database.fetchrow(_OPEN, first)
            if found is not None and not any(found.values()):
                state: dict[str, Any] = await self._system.simulator_state()
                if not state["events"]["pending"] and not await self._books.facts_missing(first):
                    return None
            asleep = await self._asleep(first, found)
            asleep_since = (asleep_since or time.monotonic()) if asleep else None
            if asleep_since is not None and time.monotonic() - asleep_since > _ASLEEP_S:
                return f"{asleep} pending rows have no wake-up, and no pointer comes"
        return f"not everything had ended after {QUIET_S:g} s"

    async def _asleep(self, first: UUID, found: Any) -> int:
        """Pending rows that nothing will wake, as far as the tables show, when nothing else is under way."""
        if not found["pending"] or found["sending"]:
            return 0
        return int(await self._system.database.fetchval(_ASLEEP, first))
