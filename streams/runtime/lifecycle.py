"""One life for every duty: start, run until asked to stop, drain. The only place that catches Exception."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from streams.domain.errors import Misconfigured, Unavailable
from streams.runtime import metrics
from streams.runtime.logs import describe

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


@dataclass(slots=True)
class Health:
    """What a stage says of itself. Liveness is progress, not an open port; readiness names what is missing."""

    stage: str
    clock: Callable[[], float] = time.monotonic
    stuck_after_s: float = 60.0
    _missing: dict[str, str] = field(default_factory=dict)
    _beats: dict[str, float] = field(default_factory=dict)

    def beat(self, duty: str) -> None:
        """The duty made progress, or found that there is nothing to do."""
        self._beats[duty] = self.clock()

    def forget(self, duty: str) -> None:
        """The duty has ended on purpose."""
        self._beats.pop(duty, None)
        self._missing.pop(duty, None)

    def not_ready(self, what: str, why: str) -> None:
        self._missing[what] = why

    def ready(self, what: str) -> None:
        self._missing.pop(what, None)

    def missing(self) -> dict[str, str]:
        """What is missing until the stage is ready; empty when it is."""
        return dict(self._missing)

    def stuck(self) -> dict[str, float]:
        """Duties without progress for longer than the bound, with their seconds."""
        now = self.clock()
        ages = {duty: now - at for duty, at in self._beats.items()}
        return {duty: age for duty, age in ages.items() if age > self.stuck_after_s}


class Stage(Protocol):
    """A long-running part of the system. start() may raise Unavailable or Misconfigured; stop() is idempotent, safe before
    start(), stops taking work, drains within its own budget and returns."""

    @property
    def name(self) -> str: ...

    @property
    def health(self) -> Health: ...

    async def start(self) -> None: ...

    async def run(self) -> None:
        """Works until stop() is called or a Misconfigured is raised; survives everything else."""

    async def stop(self) -> None: ...


async def run_loop(
    step: Callable[[], Awaitable[float]],
    *,
    name: str,
    health: Health,
    stopping: asyncio.Event,
    recover: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Calls step() until stopping is set. step returns the seconds to wait before its next call (0: at once).

    An error is logged and counted, the duty is not ready, and step is called again after a growing pause
    (0.1 s to 5 s), after recover() where given. Misconfigured and cancellation go to the caller.
    """
    pause = FIRST_PAUSE_S
    broken = False
    health.beat(name)
    while not stopping.is_set():
        try:
            if broken and recover is not None:
                await recover()
            wait = await step()
        except Misconfigured:
            raise
        except Exception as error:  # noqa: BLE001 the one place that meets errors nobody foresaw
            broken = True
            _report(name, health, error)
            await wait_or_stop(stopping, pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)
        else:
            if broken:
                log.info("duty works again", extra={"action": "duty.recovered", "duty": name})
            broken, pause = False, FIRST_PAUSE_S
            health.ready(name)
            health.beat(name)
            if wait > 0:
                await wait_or_stop(stopping, wait)
    health.forget(name)


async def run_duties(
    duties: Mapping[str, Callable[[], Awaitable[float]]], *, health: Health, stopping: asyncio.Event
) -> None:
    """Runs each duty's step in a loop of its own until stopping is set. If one ends by an error, stopping is set, all others
    end their step, and the error is raised."""
    loops = [
        asyncio.create_task(run_loop(step, name=name, health=health, stopping=stopping))
        for name, step in duties.items()
    ]
    try:
        await asyncio.gather(*loops)
    finally:
        stopping.set()
        await asyncio.gather(*loops, return_exceptions=True)


def _report(name: str, health: Health, error: Exception) -> None:
    metrics.DUTY_FAILURES.labels(stage=health.stage, duty=name, kind=type(error).__name__).inc()
    health.not_ready(name, describe(error))
    # The world being down is known by its metric and one line; anything else is a bug of ours and keeps its traceback.
    # An unavailable server is progress of a kind: a restart of this process would not mend it.
    expected = isinstance(error, Unavailable)
    if expected:
        health.beat(name)
    log.log(
        logging.WARNING if expected else logging.ERROR,
        "duty failed and will be tried again",
        extra={"action": "duty.failed", "duty": name, "error": describe(error)},
        exc_info=None if expected else error,
    )


async def wait_or_stop(stopping: asyncio.Event, seconds: float) -> bool:
    """Waits so long, or until stopping is set; True if it is."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
    return stopping.is_set()


async def run_stages(stages: Sequence[Stage], *, start_patience_s: float, drain_s: float) -> None:
    """Starts the stages, runs them until SIGTERM or SIGINT, drains them. Raises what a stage raised, and RuntimeError for one
    that ended by itself, cancelled by a library say: who restarts processes that fail has to see it."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopping.set)
    runs: list[asyncio.Task[None]] = []
    try:
        for stage in stages:
            if not await _start(stage, stopping, start_patience_s):
                return
            runs.append(asyncio.create_task(stage.run(), name=stage.name))
        log.info("all stages are running", extra={"action": "process.started"})
        asked = asyncio.create_task(stopping.wait())
        await asyncio.wait([asked, *runs], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        ended = [run.get_name() for run in runs if run.done() and not stopping.is_set()]
    finally:
        log.info("draining", extra={"action": "process.draining"})
        await _stop_all(stages, runs, drain_s)
        log.info("stopped", extra={"action": "process.stopped"})
    for run in runs:
        if run.done() and not run.cancelled() and (error := run.exception()) is not None:
            raise error
    if ended:
        raise RuntimeError(f"stage {ended[0]} ended although nobody asked it to")


async def _start(stage: Stage, stopping: asyncio.Event, patience_s: float) -> bool:
    """Starts one stage, waiting for servers that are not there yet; False if asked to stop meanwhile."""
    deadline = time.monotonic() + patience_s
    pause = FIRST_PAUSE_S
    while True:
        try:
            await stage.start()
        except Unavailable as error:
            if time.monotonic() > deadline:
                raise
            log.warning(
                "waiting for a server",
                extra={"action": "stage.waiting", "waiting": stage.name, "error": str(error)},
            )
            await stage.stop()
            if await wait_or_stop(stopping, pause):
                return False
            pause = min(pause * 2, LONGEST_PAUSE_S)
        else:
            log.info("stage started", extra={"action": "stage.started", "started": stage.name})
            return not stopping.is_set()


async def _stop_all(
    stages: Sequence[Stage], runs: Sequence["asyncio.Task[None]"], drain_s: float
) -> None:
    results = await asyncio.gather(
        *(asyncio.wait_for(stage.stop(), drain_s) for stage in stages), return_exceptions=True
    )
    for stage, result in zip(stages, results, strict=True):
        if isinstance(result, BaseException):
            log.error(
                "stage did not drain",
                extra={"action": "stage.not_drained", "stopped": stage.name, "error": repr(result)},
            )
    for run in runs:
        if not run.done():
            run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
