"""One round: load and disturbances at the same time, then quiet, then the verdict."""

import asyncio
import time
from collections.abc import Mapping
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

QUIET_S: Final = 300.0
# So many rows that could be sent may wait before the application is held back.
_MOST_WAITING: Final = 400
_WAITING: Final = "SELECT count(*) FROM email_outbox WHERE id >= $1 AND state IN ('pending', 'sending') AND (send_after IS NULL OR send_after < now())"
_BROKEN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)  # fmt: skip
_OPEN: Final = (
    "SELECT count(*) FILTER (WHERE state = 'pending') AS pending, count(*) FILTER (WHERE state = 'sending') AS sending, "
    "count(*) FILTER (WHERE state = 'ambiguous') AS ambiguous FROM email_outbox WHERE id >= $1"
)
# Longer than a lease and the patience of the operator, on a slow machine too: what has not moved for so long never will.
_STILL_S: Final = 60.0


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

    @property
    def holds(self) -> bool:
        return self.verdict.holds and self.stopped is None

    @property
    def kinds(self) -> frozenset[str]:
        """Which promises were broken."""
        stopped = ("stopped",) if self.stopped else ()
        return frozenset((*(o.kind for o in self.verdict.offences), *stopped))


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
        before: object = None
        same_since = time.monotonic()
        while True:
            await asyncio.sleep(0.5)
            left = await self._left(first)
            if not any(left.values()):
                return None
            if left != before:
                before, same_since = left, time.monotonic()
            now = time.monotonic()
            if now - same_since > _STILL_S:
                return f"nothing moves any more, and there is left: {_told(left)}"
            if now > deadline:
                return f"not everything had ended after {QUIET_S:g} s: {_told(left)}"

    async def _left(self, first: UUID) -> dict[str, int]:
        """What has not ended yet."""
        found = await self._system.database.fetchrow(_OPEN, first)
        left = dict(found or {})
        state: dict[str, Any] = await self._system.simulator_state()
        left["events to come"] = state["events"]["pending"]
        if not any(left.values()):
            left["facts"] = await self._books.facts_missing(first)
        return left


def _told(left: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in left.items() if count)
