"""Stages as processes of their own, and what processor time they use."""

import os
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError

from devservers.processes import Supervised, spawn

_TICKS: Final = os.sysconf("SC_CLK_TCK")
READY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProcess:
    """A running stage."""

    name: str
    process: Supervised
    health_port: int

    def cpu_s(self) -> float:
        """User and system time of the process so far, all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


class StageFailed(Exception):
    """A stage does not run; the text ends with the last line of its log."""


@contextmanager
def running_stage(
    name: str, *, environment: Mapping[str, str], health_port: int, directory: Path
) -> Iterator[StageProcess]:
    """`mailstreams NAME`, ready to work, until the end of the block."""
    log = directory / f"{name}.log"
    process = spawn(
        [sys.executable, "-m", "streams", name],
        name=name,
        log_path=log,
        env={**environment, "MAILSTREAMS_HTTP_PORT": str(health_port)},
    )
    stage = StageProcess(name=name, process=process, health_port=health_port)
    try:
        _wait_ready(stage, log)
        yield stage
    finally:
        process.stop(20.0)


def _wait_ready(stage: StageProcess, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    url = f"http://127.0.0.1:{stage.health_port}/health/ready"
    while not _answers_200(url):
        if not stage.process.alive or time.monotonic() > deadline:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise StageFailed(f"{stage.name} is not ready: {lines[-1] if lines else 'no word'}")
        time.sleep(0.05)


def _answers_200(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 our own loopback address
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def run_migrate(environment: Mapping[str, str], directory: Path) -> None:
    """`mailstreams migrate`."""
    process = spawn(
        [sys.executable, "-m", "streams", "migrate"],
        name="migrate",
        log_path=directory / "migrate.log",
        env=dict(environment),
    )
    if process.wait(60) != 0:
        raise StageFailed((directory / "migrate.log").read_text(encoding="utf-8")[-2000:])
