"""Directories of single runs, held by a lock that every process of the run inherits.

The lock is free exactly when no process of that run lives any more, so what a killed run left behind is
recognised without process ids, and removed at the next start.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from devservers.sysv import remove_segment_of

LOCK = "lock"


class RunDirectory:
    """A directory that is this run's alone; `lock` is the descriptor that children are to hold too."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock

    @classmethod
    def create(cls, parent: Path) -> RunDirectory:
        """Make one, and remove those of dead runs."""
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / ".sweep").open("w") as sweep:
            fcntl.flock(sweep, fcntl.LOCK_EX)  # nobody else makes or sweeps meanwhile
            for found in parent.glob("run-*"):
                _remove_if_dead(found)
            path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
            path.chmod(0o711)
            lock = _try_lock(path)
        if lock is None:
            raise AssertionError("a new directory is locked by nobody")
        return cls(path, lock)

    def remove(self) -> None:
        """Remove it with all that is in it. Its processes must have ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _try_lock(directory: Path) -> int | None:
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    os.close(descriptor)
    return None


def _remove_if_dead(directory: Path) -> None:
    with suppress(OSError):
        lock = _try_lock(directory)
        if lock is not None:
            remove_segment_of(directory / "postgres")
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)
