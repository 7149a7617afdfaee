"""Where caches and data live, and as whom PostgreSQL runs, which refuses root."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from devservers.errors import DiskFull, PrerequisiteMissing, StartFailed
from devservers.processes import Account
from devservers.settings import DEV_RUNS

NEEDED_FREE_BYTES = 1 << 30
LINUX = sys.platform == "linux"
LONG_LOG_BYTES = 10 << 20
ROOT_CACHE = Path("/var/cache/mailstreams")
MEMORY = Path("/dev/shm")  # noqa: S108 a directory of ours in it is checked for its owner
ROOM_IN_MEMORY_BYTES = 8 << 30
# Limit and use, as a container sees them: of control groups of version 2, and of version 1.
CONTROL_GROUP_MEMORY = tuple(
    (Path("/sys/fs/cgroup", limit), Path("/sys/fs/cgroup", used))
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    )
)


def postgres_account() -> Account | None:
    """As root: `postgres`, else `nobody`. None for an ordinary user, who runs it himself."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise PrerequisiteMissing(
        "PostgreSQL refuses to run as root: create a user named postgres, or start as another user."
    )


def may_enter(path: Path, account: Account | None) -> bool:
    """Whether that user may go through (or run) all of the path. What is missing counts as theirs."""
    if account is None:
        return True
    groups = set(os.getgrouplist(account.name, account.gid))
    absolute = path.absolute().resolve()
    for place in (absolute, *absolute.parents):
        if place.exists() and not _may_search(place.stat(), account.uid, groups):
            return False
    return True


def _may_search(found: os.stat_result, uid: int, groups: set[int]) -> bool:
    if found.st_uid == uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in groups:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def cache_directory(given: Path | None, account: Account | None) -> Path:
    """The cache, made if absent, in a place that `account` may enter too."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    chosen = given or Path(home, "mailstreams")
    if given is None and not may_enter(chosen, account):
        chosen = ROOT_CACHE
    chosen = chosen.absolute()
    try:
        make_enterable(chosen)
    except OSError as error:
        raise PrerequisiteMissing(
            f"The cache directory {chosen} cannot be made ({error.strerror}): set XDG_CACHE_HOME to one that can."
        ) from error
    if not may_enter(chosen, account):
        raise PrerequisiteMissing(
            f"The user {account.name if account else ''} may not enter {chosen}: choose another XDG_CACHE_HOME."
        )
    return chosen


def runs_directory(given: Path | None, cache: Path, account: Account | None) -> Path:
    """Where the data of single runs go, with room for them and open to `account`."""
    if given is None:
        return cache / "runs"
    chosen = make_enterable(given.absolute())
    if not may_enter(chosen, account):
        raise PrerequisiteMissing(
            f"The user {account.name if account else ''} may not enter {chosen}: choose another {DEV_RUNS}."
        )
    check_space(chosen)
    return chosen


def memory_directory(memory: Path = MEMORY, needed: int = ROOM_IN_MEMORY_BYTES) -> Path | None:
    """A directory of this user's in memory for data that are thrown away, where there is plenty of it; else None.

    Databases and topics that are made and dropped by the hundred cost ten times as much on a disk: ext4 looks at every inode
    of the last seconds before it gives one out again.
    """
    place = memory / f"mailstreams-{os.geteuid()}"
    try:
        found = os.statvfs(memory)
        if found.f_bavail * found.f_frsize < needed or found.f_flag & os.ST_NOEXEC:
            return None
        if min(_available_bytes()) < needed:
            return None
        make_enterable(place)
        return place if place.stat().st_uid == os.geteuid() and not place.is_symlink() else None
    except (OSError, ValueError, KeyError):
        return None


def _available_bytes() -> list[int]:
    """Memory that may be used, by the machine and by the control group that this process is in."""
    machine = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    found = [int(machine["MemAvailable"].split()[0]) << 10]
    for limit, used in CONTROL_GROUP_MEMORY:
        if limit.exists() and (text := limit.read_text().strip()) != "max":
            found.append(int(text) - int(used.read_text()))
    return found


def make_enterable(directory: Path) -> Path:
    """Make a directory, and missing ones above it, that other users may go through but not list."""
    if not directory.is_dir():
        make_enterable(directory.parent)
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)
    return directory


def check_space(directory: Path, needed: int = NEEDED_FREE_BYTES) -> None:
    """Refuse to start where the disk would fill up."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise DiskFull(
            f"Only {free >> 20} MiB are free at {directory} and {needed >> 20} MiB are needed: "
            "make room, or point XDG_CACHE_HOME elsewhere."
        )


def publish(target: Path, build: Callable[[Path, int], None]) -> Path:
    """Fill a cache directory once: built under another name, synced, then renamed.

    `build` gets the directory to make and the descriptor of a lock, which its child processes should
    hold too. Half-built ones of a killed run are removed.
    """
    if target.exists():
        return target
    make_enterable(target.parent)
    prefix = f".{target.name}.building-"
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for stale in target.parent.glob(f"{prefix}*"):
            shutil.rmtree(stale, ignore_errors=True)
        if not target.exists():
            building = target.parent / f"{prefix}{uuid.uuid4().hex[:8]}"
            try:
                build(building, lock.fileno())
                sync_tree(building)
                building.rename(target)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return target


def sync_tree(directory: Path) -> None:
    """Have everything below on the disk. On Linux the file system at once: a tenth of file by file."""
    if LINUX:
        _sync(directory, ctypes.CDLL(None).syncfs)
        return
    for place, _, names in os.walk(directory):
        for path in (Path(place), *(Path(place, name) for name in names)):
            if not path.is_symlink():
                _sync(path, os.fsync)


def _sync(path: Path, how: Callable[[int], object]) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    how(descriptor)
    os.close(descriptor)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree with owners and modes. The system's `cp` takes a tenth of what Python takes."""
    copied = subprocess.run(
        ["/bin/cp", "-pR", source, target], capture_output=True, text=True, check=False
    )
    if copied.returncode != 0:
        raise StartFailed(
            f"{source} could not be copied ({copied.stderr.strip()}): make room, or point XDG_CACHE_HOME elsewhere."
        )


def make_readable(tree: Path) -> None:
    """Let every user read a tree, and run what its owner may run."""
    for place, _, names in os.walk(tree):
        for path in (Path(place), *(Path(place, name) for name in names)):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | (0o055 if mode & stat.S_IXUSR else 0o044))


def give_to(path: Path, account: Account | None) -> None:
    """Change the owner of a file or of a whole tree."""
    if account is None:
        return
    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    for place, directories, names in os.walk(path):
        for name in (*directories, *names):
            os.chown(os.path.join(place, name), account.uid, account.gid, follow_symlinks=False)


def start_log(path: Path) -> Path:
    """Put a log that has grown long aside, for the one that begins now."""
    if path.exists() and path.stat().st_size > LONG_LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    return path


def write_atomically(
    path: Path, text: str, account: Account | None = None, mode: int = 0o644
) -> None:
    """Replace a file in one step, so that a reader sees the old or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    give_to(draft, account)
    draft.rename(path)
