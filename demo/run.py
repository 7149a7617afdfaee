"""One run of the demo: set up, commit, kill if asked, wait until all is settled, judge."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
from rich.console import Console

from demo import kills, producer, watch
from demo.plan import RULES, Kind, Plan
from demo.system import NotWorking, System
from demo.verdict import Verdict, judge

PER_SECOND = 125.0
SETTLE_S = 60.0


@dataclass(slots=True)
class Run:
    """The state of one run."""

    system: System
    plan: Plan
    console: Console
    with_kills: bool
    committed: producer.Committed = field(default_factory=producer.Committed)
    in_flight_at_kills: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    async def run(self) -> Verdict:
        """The verdict; NotWorking if the system stands still."""
        async with asyncpg.create_pool(self.system.dsn, min_size=2, max_size=8) as pool:
            await producer.prepare(pool, self.plan.suppressed_before)
            await asyncio.to_thread(self.system.control, "rules", rules=RULES)
            watching = asyncio.create_task(self._tell(pool))
            try:
                await self._first_wave(pool)
                await self._follow_ups(pool)
                settled_s = await self._settle(pool)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            self._say(f"everything is settled {settled_s:.1f} s after the last commit")
            ledger = await asyncio.to_thread(self.system.ledger)
            found = await watch.find(pool, ledger)
            return judge(
                self.plan,
                self.committed.ids,
                self.committed.at,
                found,
                twins_made_anew=self.committed.twins_with_another_id,
            )

    async def _first_wave(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        gate = producer.Gate(kills.first_limit() if self.with_kills else 10**9)
        commits = producer.run(
            pool, self.plan.transactions, self.committed, per_second=PER_SECOND, gate=gate
        )
        if not self.with_kills:
            await commits
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(commits)
            killing = group.create_task(kills.kill_each_stage(self.system, pool, gate, self.told))
        self.in_flight_at_kills = killing.result()

    async def _follow_ups(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        """A second mail to everybody who bounced or complained, once the suppression that follows is in force."""
        messages = self.plan.follow_ups
        await self._until(
            lambda: _equals(watch.suppressed_recipients(pool, messages), len(messages)),
            "the suppressions of those who bounced or complained",
        )
        self.told.append(
            f"{len(messages)} recipients bounced or complained and are suppressed; each gets a second mail"
        )
        for message in messages:
            await producer.commit(pool, [message], self.committed)

    async def _settle(self, pool: asyncpg.Pool[asyncpg.Record]) -> float:
        started = time.monotonic()
        await self._until(lambda: self._is_settled(pool), "every message to be settled")
        return time.monotonic() - started

    async def _is_settled(self, pool: asyncpg.Pool[asyncpg.Record]) -> bool:
        now = await watch.states(pool)
        if any(now.get(state) for state in ("pending", "sending", "ambiguous")):
            return False
        simulator = await asyncio.to_thread(self.system.simulator_state)
        if simulator["events"]["pending"]:
            return False
        ledger = await asyncio.to_thread(self.system.ledger)
        found = await watch.find(pool, ledger)
        return not judge(self.plan, self.committed.ids, self.committed.at, found).numbers[
            "facts_missing"
        ]

    async def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not await condition():
            if time.monotonic() > deadline:
                raise NotWorking(f"waited {SETTLE_S:g} s for {what}")
            await asyncio.sleep(0.2)

    async def _tell(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        """One line a second, and one when the state has changed."""
        started, last = time.monotonic(), ""
        while True:
            now = await watch.states(pool)
            for line in self.told:
                self._say(line)
            self.told.clear()
            line = "  ".join(f"{state} {now[state]}" for state in sorted(now))
            if line != last:
                self._say(
                    f"{time.monotonic() - started:5.1f} s  committed {len(self.committed.at):4}  {line}"
                )
            last = line
            await asyncio.sleep(1.0)

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False)

    def example(self) -> UUID:
        """The message whose story is told: one that bounced."""
        message = next(m for m in self.plan.messages if m.kind is Kind.BOUNCES)
        return self.committed.ids[message.number]


async def _equals(count: Any, wanted: int) -> bool:
    return bool(await count == wanted)
