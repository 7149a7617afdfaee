"""Performs the disturbances of a scenario on a running system, and brings back what they took away."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from crash.load import LoadClock
from crash.scenario import Disturbance, Scenario, stage_of
from crash.system import System
from crash.traps import Action

# How long a worker may take to come by its point before it is killed where it stands.
_POINT_S: Final = 6.0
_TERM_S: Final = 8.0
_END_S: Final = 30.0
# A supervisor waits a moment before it starts again what ended.
_SUPERVISOR_S: Final = 0.3


class Chaos:
    """Runs once. counts: what was done, by kind; points: kills by the point that they happened at."""

    def __init__(self, system: System, scenario: Scenario, clock: LoadClock) -> None:
        self.counts: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.kills = 0
        self.outages: list[tuple[float, float]] = []
        self.log: list[str] = []
        self._system = system
        self._scenario = scenario
        self._clock = clock
        self._busy: dict[str, asyncio.Lock] = {}
        self._deeds: Mapping[str, Callable[[Disturbance], Awaitable[None]]] = {
            "kill": self._kill,
            "kill at": self._kill_at,
            "term": self._term,
            "freeze": self._freeze,
            "freeze at": self._freeze_at,
            "cut": self._cut,
            "restart postgres": self._restart_postgres,
            "freeze postgres": self._freeze_postgres,
            "restart kafka": self._restart_kafka,
            "freeze kafka": self._freeze_kafka,
            "outage": self._outage,
        }

    async def run(self) -> None:
        """Returns when all is done and everything runs again."""
        workers = self._system.workers
        workers.on_end = self._ended
        async with asyncio.TaskGroup() as group:
            for disturbance in self._scenario.disturbances:
                await self._clock.reached(disturbance.at)
                group.create_task(self._do(disturbance))
        await self._system.proxies.heal()

    async def _do(self, disturbance: Disturbance) -> None:
        lock = self._busy.setdefault(disturbance.who or "servers", asyncio.Lock())
        async with lock:
            self.log.append(f"{time.time():.3f} {disturbance}")
            await self._deeds[disturbance.do](disturbance)
            self.counts[disturbance.name] += 1
        self._revive(disturbance.who)

    def _ended(self, name: str, code: int) -> None:
        """A worker that ends by itself is started again, as a supervisor would."""
        self.log.append(f"{time.time():.3f} {name} ended ({code})")
        lock = self._busy.get(name)
        if lock is None or not lock.locked():
            asyncio.get_running_loop().call_later(_SUPERVISOR_S, self._revive, name)

    def _revive(self, name: str) -> None:
        """Starts a worker that ended by itself."""
        lock = self._busy.get(name)
        free = lock is None or not lock.locked()
        if free and name in self._system.replicas and not self._system.workers.alive(name):
            self.counts[f"ended by itself {stage_of(name)}"] += 1
            self._system.start_replica(name)

    # Workers ------------------------------------------------------------------------------------------------------

    async def _kill(self, what: Disturbance) -> None:
        await self._end(what.who, "anywhere")
        await self._start_again(what)

    async def _end(self, who: str, point: str) -> None:
        workers = self._system.workers
        if not workers.alive(who):
            return
        workers.signal(who, signal.SIGKILL)
        await workers.ended(who, _END_S)
        self._count(who, point)

    def _count(self, who: str, point: str) -> None:
        """A worker has ended; it counts if it was killed."""
        if self._system.workers.codes.get(who) == -signal.SIGKILL:
            self.kills += 1
            self.points[f"{stage_of(who)}: {point}"] += 1

    async def _start_again(self, what: Disturbance) -> None:
        await asyncio.sleep(what.back_s)
        if not self._system.workers.alive(what.who):
            self._system.start_replica(what.who)

    async def _kill_at(self, what: Disturbance) -> None:
        """Where the worker does not come by, it is killed anywhere, and its successor, which starts through its first points."""
        for _ in range(2):
            if not self._system.workers.alive(what.who):
                self._system.start_replica(what.who)
            trigger = self._system.triggers[what.who]
            trigger.arm(what.point, Action.KILL, times=what.times)
            if await self._system.workers.ended(what.who, _POINT_S):
                self._count(what.who, what.point)
                await self._start_again(what)
                return
            trigger.disarm()
            await self._end(what.who, "anywhere")
            await self._start_again(what)

    async def _term(self, what: Disturbance) -> None:
        """An orderly end, which counts as no kill unless it takes too long."""
        workers = self._system.workers
        workers.signal(what.who, signal.SIGTERM)
        if not await workers.ended(what.who, _TERM_S):
            await self._end(what.who, "draining")
        await self._start_again(what)

    async def _freeze(self, what: Disturbance) -> None:
        workers = self._system.workers
        workers.signal(what.who, signal.SIGSTOP)
        await asyncio.sleep(what.seconds)
        workers.signal(what.who, signal.SIGCONT)

    async def _freeze_at(self, what: Disturbance) -> None:
        workers, trigger = self._system.workers, self._system.triggers[what.who]
        trigger.arm(what.point, Action.FREEZE, times=what.times)
        deadline = time.monotonic() + _POINT_S
        while not trigger.fired and time.monotonic() < deadline:  # noqa: ASYNC110 another process sets it
            await asyncio.sleep(0.02)
        if trigger.disarm():
            await asyncio.sleep(what.seconds)
        workers.signal(what.who, signal.SIGCONT)

    # Links and servers --------------------------------------------------------------------------------------------

    async def _cut(self, what: Disturbance) -> None:
        await self._system.proxies.cut(what.who, what.how, seconds=what.seconds, share=what.share)
        await asyncio.sleep(what.seconds)

    async def _restart_postgres(self, _: Disturbance) -> None:
        server = self._system.servers.postgres
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    async def _restart_kafka(self, _: Disturbance) -> None:
        server = self._system.servers.kafka
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    async def _freeze_postgres(self, what: Disturbance) -> None:
        server = self._system.servers.postgres
        await asyncio.to_thread(server.pause)
        await asyncio.sleep(what.seconds)
        await asyncio.to_thread(server.cont)

    async def _freeze_kafka(self, what: Disturbance) -> None:
        server = self._system.servers.kafka
        await asyncio.to_thread(server.pause)
        await asyncio.sleep(what.seconds)
        await asyncio.to_thread(server.cont)

    async def _outage(self, what: Disturbance) -> None:
        """SES answers 503 to everything for a while."""
        error = {
            "when": "before",
            "lie": "error",
            "status": 503,
            "code": "ServiceUnavailable",
            "share": 1.0,
        }
        started = time.time()
        await self._system.control("faults", faults=[error])
        await asyncio.sleep(what.seconds)
        self.outages.append((started, time.time()))
        await self._system.control("faults", faults=faults_of(self._scenario))


def faults_of(scenario: Scenario) -> list[dict[str, object]]:
    """The lies of SES in quiet times."""
    mix = scenario.mix
    shares: list[tuple[float, dict[str, object]]] = [
        (mix.lost_answers, {"when": "after", "lie": "hang"}),
        (mix.unavailable, {"when": "before", "lie": "error", "status": 503, "code": "ServiceUnavailable"}),
        (mix.unavailable, {"when": "after", "lie": "error", "status": 500, "code": "InternalFailure"}),
        (mix.throttled, {"when": "before", "lie": "error", "status": 429, "code": "TooManyRequestsException"}),
        (mix.dropped, {"when": "after", "lie": "reset"}),
        (mix.dropped, {"when": "before", "lie": "close"}),
        (mix.dropped, {"when": "before", "lie": "hang"}),
        (mix.slow_answers, {"when": "after", "lie": "delay", "seconds": 0.3}),
        (mix.slow_answers / 10, {"when": "before", "lie": "delay", "seconds": 1.0}),
    ]  # fmt: skip
    return [{**lie, "share": share} for share, lie in shares if share > 0]
