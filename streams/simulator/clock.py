"""Times as AWS writes them, and as it reads them."""

import time
from calendar import timegm
from functools import lru_cache


def iso_milliseconds(epoch: float) -> str:
    """`2026-01-02T03:04:05.678Z`."""
    milliseconds = int(epoch * 1000)
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


def iso_basic(epoch: float) -> str:
    """`20260102T030405Z`, the form of signatures."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch))


@lru_cache(maxsize=64)
def parse_iso_basic(text: str) -> float:
    """The epoch second of `20260102T030405Z`, or a ValueError."""
    return float(timegm(time.strptime(text, "%Y%m%dT%H%M%SZ")))


@lru_cache(maxsize=64)
def _second(epoch: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(epoch))
