"""What a worker did, line by line, in a file that survives its death; the controller reads it behind.

A line: kind, seconds since 1970, then words. Kinds: `start pid`, `claim attempt outbox`, `call attempt flags` (right before
the first byte; flags: what the suppression table said at that moment), `answer attempt what`, `tell attempt kind` (an outcome
is about to be written), `told attempt recorded`.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


class Journal:
    """The worker's end. Every line is one write, so that a kill leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.note("start", str(os.getpid()))

    def note(self, kind: str, *words: str) -> None:
        os.write(self._file, f"{kind} {time.time():.6f} {' '.join(words)}\n".encode())

    def note_all(self, lines: list[tuple[str, ...]]) -> None:
        """Many lines, one write."""
        now = f"{time.time():.6f}"
        text = "".join(f"{kind} {now} {' '.join(words)}\n" for kind, *words in lines)
        os.write(self._file, text.encode())


@dataclass(slots=True)
class Reader:
    """The controller's end of one journal."""

    path: Path
    _position: int = field(default=0, init=False)

    def new_lines(self) -> Iterator[list[str]]:
        """What was written since the last time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        self._position += whole
        for line in data[:whole].decode().splitlines():
            yield line.split(" ")
