"""What the numbers were measured on."""

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("aiohttp", "aiokafka", "asyncpg", "cryptography", "orjson", "uvloop")


def description() -> dict[str, Any]:
    """Processor, cores and versions."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def environment() -> dict[str, str]:
    """This process's environment without settings of mailstreams, which would change what is measured."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("MAILSTREAMS_")
    }
