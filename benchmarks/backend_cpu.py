"""The processor time of one PostgreSQL process."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

NANOSECONDS: Final = 1e9


def clock_of(pid: int) -> tuple[str, Callable[[], float]]:
    """('cpu', its processor time in seconds), or ('wall', the time of day) where the process runs elsewhere."""
    folder = Path("/proc") / str(pid)
    try:
        is_local = (folder / "comm").read_text(encoding="utf-8").startswith("postgres")
        (folder / "schedstat").read_text(encoding="utf-8")
    except OSError:
        is_local = False
    if not is_local:
        return "wall", time.perf_counter

    def seconds() -> float:
        return int((folder / "schedstat").read_text(encoding="utf-8").split()[0]) / NANOSECONDS

    return "cpu", seconds
