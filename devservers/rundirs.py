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

from devservers.places import make_enterable
from devservers.sysv import remove_segment_of

LOCK = "lock"


def try_lock(path: Path) -> int | None:
    """The descriptor of an exclusive lock on that file, or None if somebody holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    os.close(descriptor)
    return None


class RunDirectory:
    """A directory that is this run's alone; `lock` is the descriptor that children are to hold too."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock

    @classmethod
    def create(cls, parent: Path) -> RunDirectory:
        """Make one, and remove those of dead runs."""
        make_enterable(parent)
        with (parent / ".sweep").open("w") as sweep:
            fcntl.flock(sweep, fcntl.LOCK_EX)  # nobody else makes or sweeps meanwhile
            for found in parent.glob("run-*"):
                _remove_if_dead(found)
            path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
            path.chmod(0o711)
            lock = try_lock(path / LOCK)
        if lock is None:
            raise AssertionError("a new directory is locked by nobody")
        return cls(path, lock)

    def remove(self) -> None:
        """Remove it with all that is in it. Its processes must have ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _remove_if_dead(directory: Path) -> None:
    with suppress(OSError):
        lock = try_lock(directory / LOCK)
        if lock is not None:
            remove_segment_of(directory / "postgres")
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)
