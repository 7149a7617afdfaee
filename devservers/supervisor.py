"""Servers and further processes, kept running until told to stop."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from devservers.errors import AlreadyRunning, DevServersError, StartFailed
from devservers.places import may_enter, postgres_account, start_log
from devservers.processes import Supervised, spawn
from devservers.rundirs import try_lock
from devservers.servers import Servers
from devservers.settings import ServerSettings
from devservers.state import ENVIRONMENT, STATE, State, Status, forget, start_of, write_exports

LOCK = "lock"
ROOT_DATA = Path("/var/lib/mailstreams-dev")
CHECK_SECONDS = 0.2
READY_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # before something that ended is started again
STEADY_SECONDS = 60.0  # what ran that long starts again after the first pause

log = logging.getLogger("devservers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A process to keep running. `env` is added to ours and to the servers' addresses."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    is_ready: Callable[[], bool] | None = None  # asked until true before the next one starts
    grace: float = 10.0  # seconds between SIGTERM and SIGKILL
    address: str | None = None  # shown to the person, for example http://127.0.0.1:8080
    exports: Mapping[str, str] = field(default_factory=dict)  # for the person's own commands


Processes = Callable[[Servers], Sequence[ProcessSpec]]


def no_processes(_servers: Servers) -> Sequence[ProcessSpec]:
    """Servers only."""
    return ()


class Startable(Protocol):
    """What can be kept running: a local server or a process."""

    name: str

    @property
    def alive(self) -> bool: ...

    def start(self) -> None: ...


class KeptProcess:
    """A process after its specification, started any number of times."""

    def __init__(self, spec: ProcessSpec, servers: Servers, logs: Path, lock: int) -> None:
        self.name = spec.name
        self._spec = spec
        self._servers = servers
        self._log_path = start_log(logs / f"{spec.name}.log")
        self._lock = lock
        self._process: Supervised | None = None

    @property
    def alive(self) -> bool:
        """Whether anything of it runs."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.alive else None

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.stop()
        self._process = spawn(
            self._spec.argv,
            name=self.name,
            log_path=self._log_path,
            env=os.environ | self._servers.environment() | dict(self._spec.env),
            cwd=self._spec.cwd,
            grace=self._spec.grace,
            keep_open=(self._lock,),
        )
        deadline = time.monotonic() + READY_SECONDS
        while self._spec.is_ready is not None and not self._spec.is_ready():
            if not self.alive or time.monotonic() > deadline:
                raise StartFailed(f"{self.name} did not become ready: see {self._log_path}.")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM, after its grace SIGKILL. Nothing happens if it is down."""
        if self._process is not None:
            self._process.stop()
            self._process = None


class Restarts:
    """Starts one thing again when it has ended, after growing pauses."""

    def __init__(self, thing: Startable) -> None:
        self._thing = thing
        self._pause = FIRST_PAUSE
        self._started = time.monotonic()
        self._due: float | None = None

    def check(self, now: float) -> bool:
        """Called again and again; whether it was started right now."""
        if self._thing.alive:
            return False
        if self._due is None:
            steady = now - self._started > STEADY_SECONDS
            self._pause = FIRST_PAUSE if steady else min(self._pause * 2, LONGEST_PAUSE)
            self._due = now + self._pause
            log.warning("A process has ended and will be started again: %s", self._thing.name)
        if now < self._due:
            return False
        self._due, self._started = None, now
        try:
            self._thing.start()
        except DevServersError as error:
            log.warning("A process could not be started again: %s", error)
            return False
        return True


class Supervisor:
    """One life: `run` starts everything, keeps it running, and ends it after `request_stop`."""

    def __init__(
        self,
        state_directory: Path,
        settings: ServerSettings,
        processes: Processes = no_processes,
        *,
        announce: Callable[[State], None] = lambda _state: None,
    ) -> None:
        self._directory = state_directory.absolute()
        self._settings = settings
        self._processes = processes
        self._announce = announce
        self._stopping = threading.Event()
        self._running: list[KeptProcess] = []
        self._addresses: dict[str, str] = {}
        self._exports: dict[str, str] = {}

    def request_stop(self) -> None:
        """Have `run` end everything and return. May be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Blocks. `announce` is called once all is ready. AlreadyRunning if another one is there."""
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = try_lock(self._directory / LOCK)
        if lock is None:
            raise AlreadyRunning(f"Another supervisor holds {self._directory}: run `down` first.")
        self._write(Status.STARTING)
        data = self._settings.data_directory or data_directory(self._directory)
        servers = Servers(replace(self._settings, data_directory=data), keep_open=(lock,))
        try:
            servers.start()
            self._start_processes(servers, lock)
            write_exports(self._directory / ENVIRONMENT, servers.environment() | self._exports)
            self._announce(self._write(Status.READY, servers))
            self._watch(servers)
        finally:
            self._write(Status.STOPPING)
            for process in reversed(self._running):
                process.stop()
            servers.stop()
            forget(self._directory)
            os.close(lock)

    def _start_processes(self, servers: Servers, lock: int) -> None:
        logs = self._directory / "logs"
        logs.mkdir(exist_ok=True)
        for spec in self._processes(servers):
            process = KeptProcess(spec, servers, logs, lock)
            self._running.append(process)
            process.start()
            if spec.address is not None:
                self._addresses[spec.name] = spec.address
            self._exports |= spec.exports

    def _watch(self, servers: Servers) -> None:
        watched = [Restarts(thing) for thing in (*servers.local, *self._running)]
        while not self._stopping.wait(CHECK_SECONDS):
            started = [restarts.check(time.monotonic()) for restarts in watched]
            if any(started):
                self._write(Status.READY, servers)

    def _write(self, status: Status, servers: Servers | None = None) -> State:
        state = State(
            pid=os.getpid(),
            started=start_of(os.getpid()) or "",
            status=status,
            environment={} if servers is None else servers.environment(),
            processes={item.name: item.pid for item in self._running if item.pid is not None},
            addresses=self._addresses,
        )
        state.write(self._directory / STATE)
        return state


def data_directory(state_directory: Path) -> Path:
    """Where the data that outlive a run go: beside the state, or where root's PostgreSQL may go too."""
    beside = state_directory / "data"
    if may_enter(beside, postgres_account()):
        return beside
    name = hashlib.sha256(os.fsencode(state_directory)).hexdigest()[:12]
    return ROOT_DATA / name
