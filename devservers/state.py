"""The state file of a detached supervisor: who it is, and where its servers are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from devservers.places import write_atomically

STATE, ENVIRONMENT = "state.json", "env"
LINUX = sys.platform == "linux"


class Status(StrEnum):
    """How far the supervisor is."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the file says. `started` tells the process from a later one with the same id."""

    pid: int
    started: str
    status: Status
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: Mapping[str, int] = field(default_factory=dict)  # name to process id
    addresses: Mapping[str, str] = field(default_factory=dict)  # name to what a person may open

    def write(self, path: Path) -> None:
        """Replace the file in one step; only its owner may read it, an address may hold a password."""
        write_atomically(path, json.dumps(asdict(self), indent=2) + "\n", mode=0o600)

    def signal(self, number: int) -> bool:
        """Signal the supervisor, and nobody else; False if it has ended."""
        try:
            # Held by a descriptor, its id cannot be given again between look and signal.
            descriptor = os.pidfd_open(self.pid) if LINUX else None
        except ProcessLookupError:
            return False
        except OSError:  # a kernel before 5.3
            descriptor = None
        try:
            return start_of(self.pid) == self.started and _send(self.pid, descriptor, number)
        finally:
            if descriptor is not None:
                os.close(descriptor)


def read_state(path: Path) -> State | None:
    """The state, or None if there is no file that makes sense."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return State(**{**found, "status": Status(found["status"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_exports(path: Path, environment: Mapping[str, str]) -> None:
    """What a shell reads with `.`; for its owner alone."""
    lines = (f"export {name}={quoted(value)}\n" for name, value in environment.items())
    write_atomically(path, "".join(lines), mode=0o600)


def quoted(value: str) -> str:
    """For every POSIX shell, whatever the value holds."""
    return "'" + value.replace("'", "'\\''") + "'"


def forget(directory: Path) -> None:
    """Nothing runs any more: takes away what says where it ran."""
    for name in (STATE, ENVIRONMENT):
        (directory / name).unlink(missing_ok=True)


def start_of(pid: int) -> str | None:
    """When a process started, as exactly as the system tells; None if it has ended."""
    if LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else f"{boot} {fields[19]}"
    command = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _send(pid: int, descriptor: int | None, number: int) -> bool:
    try:
        if descriptor is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    return True
