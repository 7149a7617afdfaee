"""The small System V segment that a killed PostgreSQL leaves behind."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

IPC_RMID = 0


def remove_segment_of(data: Path) -> None:
    """Remove the segment that the data directory's `postmaster.pid` names, if nobody is attached.

    Linux only: elsewhere nothing happens. Key, id and creator must all fit, since ids are given again.
    """
    with suppress(OSError, ValueError, IndexError):
        lines = (data / "postmaster.pid").read_text().splitlines()
        postmaster, (key, segment) = int(lines[0]), map(int, lines[6].split())
        for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
            fields = line.split()
            found = (int(fields[0]), int(fields[1]), int(fields[4]), int(fields[6]))
            if found == (key, segment, postmaster, 0):
                ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)
