"""What runs on this machine and where, read from /proc, for tests of started and ended processes."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devservers.jars import fetch, kafka_version, locked_jars
from devservers.places import cache_directory, copy_tree, postgres_account

REPOSITORY = Path(__file__).parents[2]


def python_path(*first: Path) -> str:
    """PYTHONPATH that leads to these places and to all that we import from."""
    return os.pathsep.join([*map(str, first), *filter(None, sys.path)])


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Poll until the condition is true; fail at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def command_lines(place: Path) -> dict[int, str]:
    """The processes that name the place in their command line, or work in it or below."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
                works_in = str((entry / "cwd").readlink())
            except OSError:
                continue
            if str(place) in line or works_in.startswith(str(place)):
                found[int(entry.name)] = line
    return found


def detached_segments() -> set[str]:
    """The System V shared memory of the machine that nobody is attached to."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line.split()[1] for line in lines if line.split()[6] == "0"}


@contextmanager
def open_place() -> Iterator[Path]:
    """An empty place that every user may enter, with a space in its name; no process is left in it."""
    path = Path(tempfile.mkdtemp(prefix="dev servers "))
    path.chmod(0o755)
    try:
        yield path
        eventually(lambda: not command_lines(path))
    finally:
        shutil.rmtree(path, ignore_errors=True)


def lend_jars(cache: Path) -> None:
    """Put Kafka's jars into another cache, so that nothing is downloaded twice."""
    locked = locked_jars()
    jars = our_cache() / f"kafka-{kafka_version(locked)}" / "jars"
    fetch(locked, jars)
    lend(jars, cache)


def lend_prepared_data(cache: Path) -> None:
    """Put prepared data into another cache, where preparing it is not what is tested."""
    for prepared in (our_cache() / "postgres-templates", *our_cache().glob("kafka-*/formatted")):
        if prepared.exists():
            lend(prepared, cache)


def lend(tree: Path, cache: Path) -> None:
    """Copy a part of our cache to the same place of another."""
    target = cache / tree.relative_to(our_cache())
    target.parent.mkdir(parents=True, exist_ok=True)
    copy_tree(tree, target)


def our_cache() -> Path:
    """The cache of whoever runs the tests."""
    return cache_directory(None, postgres_account())
