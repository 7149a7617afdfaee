"""What runs on this machine and where, read from /proc, for tests of started and ended processes."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devservers.jars import fetch, kafka_version, locked_jars
from devservers.places import cache_directory, postgres_account


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Poll until the condition is true; fail at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


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
    home = Path(f"kafka-{kafka_version(locked)}", "jars")
    ours = cache_directory(None, postgres_account()) / home
    (cache / home).mkdir(parents=True)
    for jar in fetch(locked, ours):
        shutil.copyfile(jar, cache / home / jar.name)
