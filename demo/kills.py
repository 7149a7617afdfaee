"""Kills each stage once with SIGKILL, at a moment when the simulator has accepted calls that it has not answered yet."""

import asyncio
import time
from typing import Final

import asyncpg

from demo.producer import Gate
from demo.system import STAGES, NotWorking, System
from streams.sending.circuit import UNANSWERED

FIRST_AT: Final = 150
EVERY: Final = 330
# While a stage is killed the application goes on committing so many.
MEANWHILE: Final = 220


async def kill_each_stage(
    system: System, pool: "asyncpg.Pool[asyncpg.Record]", gate: Gate, told: list[str]
) -> dict[str, int]:
    """Returns the calls in flight at each kill. The gate has to stand at first_limit()."""
    in_flight: dict[str, int] = {}
    for number, stage in enumerate(STAGES):
        await gate.reached(FIRST_AT + number * EVERY)
        in_flight[stage] = await _kill_with_calls_in_flight(system, pool, stage)
        told.append(f"killed {stage} with {in_flight[stage]} calls in flight, started it again")
        await gate.raise_to(FIRST_AT + (number + 1) * EVERY + MEANWHILE)
    await gate.raise_to(10**9)
    return in_flight


def first_limit() -> int:
    """How many the application may commit before the first kill is over."""
    return FIRST_AT + MEANWHILE


async def _kill_with_calls_in_flight(
    system: System, pool: "asyncpg.Pool[asyncpg.Record]", stage: str
) -> int:
    await asyncio.to_thread(system.control, "hold", answers=True)
    try:
        held = await _wait_until_calls_are_held(system, pool)
        await asyncio.to_thread(system.kill, stage)
    finally:
        await asyncio.to_thread(system.control, "hold", answers=False)
    system.start(stage)
    await asyncio.to_thread(system.wait_ready, stage)
    return held


async def _wait_until_calls_are_held(system: System, pool: "asyncpg.Pool[asyncpg.Record]") -> int:
    """Until SES has accepted as many calls as the sender begins while nothing is answered.

    Other rows may be claimed by then: the journal proves that their calls had not begun.
    """
    deadline = time.monotonic() + 60
    while (held := (await asyncio.to_thread(system.simulator_state))["held"]) < UNANSWERED:
        if time.monotonic() > deadline:
            leases = await pool.fetchval("SELECT count(*) FROM email_lease")
            raise NotWorking(
                f"waited 60 s for {UNANSWERED} calls in flight: {held} are held by the simulator, {leases} rows are claimed"
            )
        await asyncio.sleep(0.02)
    return int(held)
