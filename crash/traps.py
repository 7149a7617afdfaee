"""Named points in the code, and a few bytes of shared memory by which the controller arms one of them in a running worker."""

import mmap
import os
import signal
import struct
from enum import IntEnum
from pathlib import Path
from typing import Final

# stage -> what a worker of it does, in order; each has a point before and one after.
DOINGS: Final = {
    "sender": (
        "assign", "follow suppressions", "read pending", "close unsendable", "hold paused", "take permits", "claim", "sign",
        "call", "first byte", "record outcomes", "commit offsets", "revoke",
    ),
    "relay": ("receive", "append", "acknowledge", "store checkpoint", "confirm slot"),
    "events": ("publish", "answer"),
    "recipients": ("poll", "fold", "settle", "commit offsets"),
    "scheduler": ("take due", "expire leases", "settle", "hold", "beat"),
}  # fmt: skip
POINTS: Final = {
    stage: tuple(f"{side} {doing}" for doing in doings for side in ("before", "after"))
    for stage, doings in DOINGS.items()
}
_LAYOUT: Final = struct.Struct("<BBHI")
_SIZE: Final = 4096


class Action(IntEnum):
    """What happens at the point."""

    NONE = 0
    KILL = 1
    FREEZE = 2


class Trap:
    """The worker's end."""

    def __init__(self, path: Path, stage: str) -> None:
        self._memory = _mapped(path)
        self._numbers = {point: n for n, point in enumerate(POINTS[stage])}

    def number(self, point: str) -> int:
        return self._numbers[point]

    def hit(self, number: int) -> None:
        """Costs next to nothing while nothing is armed here."""
        memory = self._memory
        if not memory[0] or memory[2] != number:
            return
        action, _, point, countdown = _LAYOUT.unpack_from(memory)
        if countdown > 1:
            _LAYOUT.pack_into(memory, 0, action, 0, point, countdown - 1)
            return
        _LAYOUT.pack_into(memory, 0, Action.NONE, 1, point, 0)
        os.kill(os.getpid(), signal.SIGKILL if action == Action.KILL else signal.SIGSTOP)


class Trigger:
    """The controller's end of one worker's trap."""

    def __init__(self, path: Path, stage: str) -> None:
        path.write_bytes(bytes(_SIZE))
        self._memory = _mapped(path)
        self._points = POINTS[stage]

    def arm(self, point: str, action: Action, *, times: int) -> None:
        """At the n-th time that the worker comes by."""
        _LAYOUT.pack_into(self._memory, 0, action, 0, self._points.index(point), times)

    def disarm(self) -> bool:
        """Whether it had fired."""
        fired = self.fired
        _LAYOUT.pack_into(self._memory, 0, Action.NONE, 0, 0, 0)
        return fired

    @property
    def fired(self) -> bool:
        return bool(self._memory[1])


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _SIZE)
