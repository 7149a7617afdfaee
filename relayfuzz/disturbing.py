"""Performs the disturbances of a plan, writes down when each was under way, and brings back what they took away."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import asyncpg

from crash.traps import Action
from relayfuzz.load import BROKEN
from relayfuzz.plan import ACTIVE, KILLS, RELAYS, THEFTS, Disturbance, Plan
from relayfuzz.system import System

# How long a relay may take to come by its point before it is killed where it stands.
_POINT_S: Final = 2.0
_TERM_S: Final = 10.0
_END_S: Final = 30.0
_SUPERVISOR_S: Final = 0.3
_STEAL_TRIES: Final = 100
_FREE: Final = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL"
_DROP: Final = "SELECT pg_drop_replication_slot($1)"
_ADVANCE: Final = "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())"
_MAKE: Final = "SELECT pg_create_logical_replication_slot($1, 'pgoutput')"


@dataclass(frozen=True, slots=True)
class Done:
    """A disturbance and when it was under way, in seconds since 1970. who: the relay, or a server, `kafka` also for its connections."""

    do: str
    who: str
    start: float
    end: float


class Disturbing:
    """Runs once. counts: what was done, by kind; points: kills of relays by the point that they happened at."""

    def __init__(self, system: System, plan: Plan) -> None:
        self.counts: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.done: list[Done] = []
        self.kills = 0
        self.cuts = 0
        self.log: list[str] = []
        self._system = system
        self._plan = plan
        self._busy: dict[str, asyncio.Lock] = {}
        self._deeds: Mapping[str, Callable[[Disturbance, str], Awaitable[None]]] = {
            "kill": self._kill,
            "kill at": self._kill_at,
            "term": self._term,
            "freeze": self._freeze,
            "freeze at": self._freeze_at,
            "cut": self._cut,
            "kill postgres": self._kill_server,
            "kill kafka": self._kill_server,
            "restart postgres": self._restart_postgres,
            "freeze postgres": self._freeze_server,
            "freeze kafka": self._freeze_server,
            **dict.fromkeys(THEFTS, self._steal),
        }

    async def run(self) -> None:
        """Returns when all is done and everything runs again."""
        self._system.stand.workers.on_end = self._ended
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for disturbance in self._plan.disturbances:
                await asyncio.sleep(max(0.0, disturbance.at - (time.monotonic() - started)))
                group.create_task(self._do(disturbance))
        await self._system.stand.proxies.heal()

    def over(self) -> None:
        """Relays that end from now on stay down."""
        self._system.stand.workers.on_end = lambda *_: None

    async def _do(self, disturbance: Disturbance) -> None:
        who = self._target(disturbance)
        async with self._busy.setdefault(who, asyncio.Lock()):
            start = time.time()
            self.log.append(f"{start:.3f} {disturbance} {who}")
            await self._deeds[disturbance.do](disturbance, who)
            self.counts[disturbance.name] += 1
            self.cuts += disturbance.do == "cut"
            if disturbance.do not in ("kill", "kill at"):
                self._note(disturbance.do, who, start)
        if who in RELAYS:
            self._revive(who)

    def _target(self, disturbance: Disturbance) -> str:
        """The active relay, or the other one while something is being done to it."""
        who = disturbance.who or disturbance.do.rpartition(" ")[2]
        if not who.startswith(ACTIVE):
            return who
        first, second = RELAYS
        active = self._system.active()
        busy = self._busy.get(active)
        if who == ACTIVE and busy is not None and busy.locked():
            active = second if active == first else first
        return who.replace(ACTIVE, active, 1)

    def _note(self, do: str, who: str, start: float) -> None:
        target = who.removesuffix("-sql").removesuffix("-replication")
        self.done.append(Done(do, target, start, time.time()))

    # Relays -------------------------------------------------------------------------------------------------------

    def _ended(self, name: str, code: int) -> None:
        """A relay that ends by itself is started again, as a supervisor would."""
        self.log.append(f"{time.time():.3f} {name} ended ({code})")
        lock = self._busy.get(name)
        if lock is None or not lock.locked():
            asyncio.get_running_loop().call_later(_SUPERVISOR_S, self._revive, name)

    def _revive(self, name: str) -> None:
        lock = self._busy.get(name)
        free = lock is None or not lock.locked()
        if free and name in RELAYS and not self._system.stand.workers.alive(name):
            self.counts["ended by itself relay"] += 1
            self._system.start_relay(name)

    async def _kill(self, what: Disturbance, who: str) -> None:
        await self._end(who, "anywhere")
        await self._start_again(what, who)

    async def _end(self, who: str, point: str) -> None:
        workers = self._system.stand.workers
        if not workers.alive(who):
            return
        start = time.time()
        workers.signal(who, signal.SIGKILL)
        await workers.ended(who, _END_S)
        self._count(who, point, start)

    def _count(self, who: str, point: str, start: float) -> None:
        if self._system.stand.workers.codes.get(who) == -signal.SIGKILL:
            self.kills += 1
            self.points[point] += 1
            self.done.append(Done("kill", who, start, start))

    async def _start_again(self, what: Disturbance, who: str) -> None:
        await asyncio.sleep(what.back_s)
        if not self._system.stand.workers.alive(who):
            self._system.start_relay(who)

    async def _kill_at(self, what: Disturbance, who: str) -> None:
        """Where the relay does not come by, it is killed anywhere."""
        workers = self._system.stand.workers
        if not workers.alive(who):
            self._system.start_relay(who)
        trigger = self._system.triggers[who]
        trigger.arm(what.point, Action.KILL, times=1)
        if await workers.ended(who, _POINT_S):
            self._count(who, what.point, time.time())
        else:
            trigger.disarm()
            await self._end(who, "anywhere")
        await self._start_again(what, who)

    async def _term(self, what: Disturbance, who: str) -> None:
        """An orderly end, which counts as no kill unless it takes too long."""
        workers = self._system.stand.workers
        workers.signal(who, signal.SIGTERM)
        if not await workers.ended(who, _TERM_S):
            await self._end(who, "draining")
        await self._start_again(what, who)

    async def _freeze(self, what: Disturbance, who: str) -> None:
        workers = self._system.stand.workers
        workers.signal(who, signal.SIGSTOP)
        await asyncio.sleep(what.seconds)
        workers.signal(who, signal.SIGCONT)

    async def _freeze_at(self, what: Disturbance, who: str) -> None:
        trigger = self._system.triggers[who]
        trigger.arm(what.point, Action.FREEZE, times=1)
        deadline = time.monotonic() + _POINT_S
        while not trigger.fired and time.monotonic() < deadline:  # noqa: ASYNC110 another process sets it
            await asyncio.sleep(0.02)
        if trigger.disarm():
            await asyncio.sleep(what.seconds)
        self._system.stand.workers.signal(who, signal.SIGCONT)

    # Connections, servers, the slot -------------------------------------------------------------------------------

    async def _cut(self, what: Disturbance, who: str) -> None:
        await self._system.stand.proxies.cut(who, what.how, seconds=what.seconds, share=1.0)
        await asyncio.sleep(0.0 if what.how == "reset" else what.seconds)

    async def _kill_server(self, what: Disturbance, who: str) -> None:
        server = getattr(self._system.stand.servers, who)
        await asyncio.to_thread(server.kill)
        self.kills += what.do in KILLS
        await asyncio.to_thread(server.start)

    async def _restart_postgres(self, _: Disturbance, __: str) -> None:
        """Fast shutdown: the server waits for the walsenders."""
        server = self._system.stand.servers.postgres
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)

    async def _freeze_server(self, what: Disturbance, who: str) -> None:
        server = getattr(self._system.stand.servers, who)
        await asyncio.to_thread(server.pause)
        await asyncio.sleep(what.seconds)
        await asyncio.to_thread(server.cont)

    async def _steal(self, what: Disturbance, _: str) -> None:
        """As somebody would who has the right to; the relay that reads the slot is thrown off it."""
        statement = _ADVANCE if what.do == "advance slot" else _DROP
        slot, pool = self._system.slot, self._system.pool
        for _try in range(_STEAL_TRIES):
            try:
                await pool.execute(_FREE, slot)
                await pool.execute(statement, slot)
                if what.do == "remake slot":
                    await pool.execute(_MAKE, slot)
            except asyncpg.UndefinedObjectError:
                return
            except BROKEN:
                await asyncio.sleep(0.01)
            else:
                return
