"""What the local PostgreSQL and the local Kafka have in common: start, ready, stop, kill, freeze."""

from __future__ import annotations

import shutil
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from devservers.errors import NotStarted, PortBusy, ProcessGone, StartFailed
from devservers.ports import is_free
from devservers.processes import Supervised

READY_SECONDS = 120.0
STOP_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class LocalServer(ABC):
    """One server process on fixed data and a fixed port, started and stopped any number of times."""

    stop_signal: ClassVar[int]  # the one that asks for an orderly end
    name: str
    directory: Path
    log_path: Path
    port: int
    disposable: bool  # the data are thrown away at the end
    cancelled: threading.Event  # set when the start of all has failed or was given up
    keep_open: tuple[int, ...]  # locks that its processes hold as long as any of them lives
    process: Supervised | None = field(default=None, init=False)

    @abstractmethod
    def launch(self) -> None:
        """Start the process and set `process`."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether clients are served now."""

    @abstractmethod
    def ports_in_use(self) -> tuple[int, ...]:
        """Every port that it listens on."""

    @property
    def pid(self) -> int:
        """The server's process id; NotStarted while it is down."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether anything of it runs, frozen or not."""
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Start it and wait until it serves clients. Nothing happens if it runs."""
        if self.alive:
            return
        self.end()
        self._raise_if_port_taken()
        self.launch()
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it in good order, by force after a while. Nothing happens if it is down."""
        if self.process is not None:
            with suppress(ProcessGone, TimeoutError):
                self.process.cont()
                self.process.signal(self.stop_signal)
                self.process.wait(STOP_SECONDS)
        self.end()

    def end(self) -> None:
        """End it as fast as its data allow. Nothing happens if it is down."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def kill(self) -> None:
        """`kill -9` all of it, and wait until it is gone. Nothing happens if it is down."""
        if self.process is not None:
            self.process.kill()
        self.end()

    def close(self) -> None:
        """End it for good: in good order where the data are kept, else at once."""
        if self.disposable:
            self.end()
        else:
            self.stop()

    def pause(self) -> None:
        """Freeze all of it (SIGSTOP)."""
        self._running().pause()

    def cont(self) -> None:
        """Let it go on after `pause`."""
        self._running().cont()

    def _running(self) -> Supervised:
        if self.process is None or not self.process.alive:
            raise NotStarted(f"{self.name} is down: call start() first.")
        return self.process

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if not self.alive:
                self._raise_if_port_taken()
                raise StartFailed(f"{self.name} ended while it started: {self._why()}")
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"{self.name} served nobody after {READY_SECONDS:g} s: {self._why()}"
                )
            if self.cancelled.wait(0.02):
                raise StartFailed(f"The start of {self.name} was given up: see what else failed.")

    def _raise_if_port_taken(self) -> None:
        for port in self.ports_in_use():
            if not is_free(port):
                raise PortBusy(
                    f"Port {port} on 127.0.0.1, which {self.name} needs, is in use: end what listens there."
                )

    def _why(self) -> str:
        """The log's last words; the log itself is kept where nothing removes it."""
        kept = self.log_path
        if self.disposable:
            kept = self.directory.parent.parent / f"failed-{self.log_path.name}"
            shutil.copyfile(self.log_path, kept)
        return f"{last_words(self.log_path)} (the log is {kept})."


def run_tool(tool: Supervised, log: Path, trouble: str) -> None:
    """Wait for a tool that prepares data; StartFailed says `trouble` and why, if it fails or hangs."""
    with tool:
        try:
            code = tool.wait(READY_SECONDS)
        except TimeoutError as error:
            raise StartFailed(f"{trouble}: {error}.") from error
    if code != 0:
        raise StartFailed(f"{trouble}: {last_words(log)}.")


def last_words(log: Path) -> str:
    """The line of a log that most likely says why: the last that speaks of an error, else the last."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    telling = [
        line
        for line in lines
        if any(word in line for word in ("FATAL", "ERROR", "Error", "error:"))
    ]
    return (telling or lines or ["its log is empty"])[-1].strip().rstrip(".")
