"""One round: writers and disturbances at the same time, then quiet, then the topics whole, then the verdict."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from relayfuzz.disturbing import Disturbing
from relayfuzz.load import AGGREGATES, BROKEN, LAST_KEY, WRITE, Writers
from relayfuzz.plan import RELAYS, Plan
from relayfuzz.reading import Reading
from relayfuzz.repeats import Closed, Session
from relayfuzz.system import Stand, System, read_journal, running
from relayfuzz.verdict import Evidence, Late, Rule, Verdict, Written, judge, overtaken
from streams.relay_late import WAIT_S

_QUIET_S: Final = 120.0
# Beyond what a relay waits before it puts suppressions into the feed again.
_HEAL_S: Final = WAIT_S + 10.0
_WRITTEN: Final = "SELECT id, aggregate, key, seq, n, digest FROM fuzz_written"
_SUPPRESSIONS: Final = "SELECT recipient_key, tenant, lane, reason, evidence_id FROM suppression"
_NOW: Final = "SELECT pg_current_wal_lsn()"
_CONFIRMED: Final = (
    "SELECT confirmed_flush_lsn >= $2 FROM pg_replication_slots WHERE slot_name = $1"
)
_FEED_EMPTY: Final = "SELECT NOT EXISTS (SELECT FROM outbox_feed)"
_ANNOUNCE: Final = "SELECT announce_suppressions($1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round did and what was found. stopped: why it was not waited for any longer, if it was not."""

    plan: Plan
    verdict: Verdict
    evidence: Evidence
    counts: dict[str, int]
    points: dict[str, int]
    kills: int
    cuts: int
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


async def run(stand: Stand, plan: Plan, *, name: str, bound_s: float) -> Round:
    """On a system of its own."""
    started = time.monotonic()
    async with running(stand, name=name, mode=plan.mode, mutation=plan.mutation) as system:
        disturbing = Disturbing(system, plan)
        writers = Writers(plan, system.pool)
        await writers.prepare()
        writing = asyncio.create_task(writers.run())
        try:
            await disturbing.run()
        finally:
            writers.stop()
            await writing
        stopped = await _quiet(system, plan.mode)
        evidence = await _gather(system, plan, writers, disturbing, bound_s)
        disturbing.over()
    return Round(
        plan=plan,
        verdict=judge(evidence),
        evidence=evidence,
        counts=dict(disturbing.counts),
        points=dict(disturbing.points),
        kills=disturbing.kills,
        cuts=disturbing.cuts,
        seconds=time.monotonic() - started,
        log=disturbing.log,
        stopped=stopped,
    )


async def _quiet(system: System, mode: str) -> str | None:
    """Waits until the relay has confirmed everything; why not, if it does not."""
    deadline = time.monotonic() + _QUIET_S
    end: object = None
    while time.monotonic() < deadline:
        try:
            if end is None:
                # One more row behind the position: what is confirmed while nothing is written comes seldom.
                before = await system.pool.fetchval(_NOW)
                await system.pool.execute(WRITE, [LAST_KEY], [1], AGGREGATES[0], 10)
                end = before
            asked = (_CONFIRMED, system.slot, end) if mode == "wal" else (_FEED_EMPTY,)
            if await system.pool.fetchval(*asked):
                return None
        except BROKEN:
            pass
        await asyncio.sleep(0.2)
    return f"not everything was confirmed {_QUIET_S:g} s after the last disturbance"


async def _gather(
    system: System, plan: Plan, writers: Writers, disturbing: Disturbing, bound_s: float
) -> Evidence:
    reading = Reading(system.stand.bootstrap_servers, system.topics)
    copies = await reading.read()
    healed, not_healed = await _heal(system, plan, reading)
    noted = _journals(system)
    return Evidence(
        copies=copies,
        written=await _written(system),
        known=writers.known,
        suppressions=await _table(system),
        sessions=noted.sessions,
        disturbances=disturbing.done,
        closed=noted.closed,
        late=noted.late,
        healed=healed,
        not_healed=not_healed,
        bound_s=bound_s,
    )


async def _heal(
    system: System, plan: Plan, reading: Reading
) -> tuple[frozenset[str], frozenset[str]]:
    """Waits for what the relay heals; what it cannot know any more is put into the feed again, as senders do that see it.
    Which were healed so, and which of them a relay that lives should have healed."""
    deadline = time.monotonic() + _HEAL_S
    if plan.heal_always:
        await asyncio.sleep(_HEAL_S)
    left = overtaken(await reading.read())
    while (known := left & _known_to_the_living(system)) and time.monotonic() < deadline:
        await asyncio.sleep(2.0)
        left = overtaken(await reading.read())
    if left:
        await system.pool.execute(_ANNOUNCE, sorted(left))
        await _quiet(system, plan.mode)
        await reading.read()
    return frozenset(left), frozenset(known)


def _known_to_the_living(system: System) -> set[str]:
    """Suppressions that a relay which still runs gave a producer up with."""
    return {key for late in _journals(system).late if late.alive for key in late.keys}


class _Noted(NamedTuple):
    """What the relays' journals say, all their lives."""

    sessions: list[Session]
    closed: list[Closed]
    late: list[Late]


def _journals(system: System) -> _Noted:
    noted = _Noted([], [], [])
    for relay in RELAYS:
        lines = read_journal(system.journal(relay))
        lives = sum(kind == "start" for kind, *_ in lines)
        alive = system.stand.workers.alive(relay)
        life = 0
        for kind, text, *words in lines:
            at = float(text)
            match kind:
                case "start":
                    life += 1
                case "open":
                    noted.sessions.append(Session(at, relay, words[0] != "-"))
                case "close":
                    noted.closed.append(Closed(at, relay))
                case _:
                    noted.late.append(Late(at, relay, frozenset(words), alive and life == lives))
    noted.sessions.sort(key=lambda s: s.at)
    return noted


async def _written(system: System) -> dict[UUID, Written]:
    rows = await system.pool.fetch(_WRITTEN)
    return {row["id"]: Written(*list(row.values())[1:]) for row in rows}


async def _table(system: System) -> dict[str, frozenset[Rule]]:
    found: dict[str, set[Rule]] = {}
    for key, *rule in await system.pool.fetch(_SUPPRESSIONS):
        found.setdefault(key, set()).add(tuple(rule))
    return {key: frozenset(of_key) for key, of_key in found.items()}
