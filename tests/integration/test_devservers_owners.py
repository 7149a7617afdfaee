"""Whoever starts the development servers may be killed, be an ordinary user, or sit in an odd place."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import devservers
from devservers import ServerSettings
from devservers.places import give_to, may_enter
from devservers.processes import Account, spawn
from devservers.rundirs import try_lock
from tests.integration.process_table import (
    command_lines,
    detached_segments,
    eventually,
    lend_jars,
    lend_prepared_data,
    open_place,
    python_path,
)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

REPOSITORY = Path(__file__).parents[2]
ORDINARY = Account(name="nobody", uid=65534, gid=65534)


@pytest.fixture(autouse=True)
def _local_servers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MAILSTREAMS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty place for caches and data; no process may be left in it."""
    with open_place() as path:
        yield path


def start_run(place: Path, *options: str) -> subprocess.Popen[bytes]:
    """`python -m devservers run` with its cache in `place`, a command that stays, and a marked start."""
    return subprocess.Popen(
        [sys.executable, "-m", "devservers", "run", *options, "--", "sleep", "1000"],
        cwd=REPOSITORY,
        env=os.environ | {"XDG_CACHE_HOME": str(place)},
        stdout=subprocess.DEVNULL,
    )


def is_locked(run: Path) -> bool:
    """Whether any process of that run is alive: each holds the lock."""
    lock = try_lock(run / "lock")
    if lock is not None:
        os.close(lock)
    return lock is None


def children_of(pid: int) -> list[str]:
    listed = subprocess.run(
        ["/bin/ps", "-A", "-ww", "-o", "ppid=,args="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    pairs = (line.split(maxsplit=1) for line in listed)
    return [pair[1] for pair in pairs if int(pair[0]) == pid]


@pytest.mark.parametrize(
    ("phase", "options"),
    [
        ("/initdb -D", ["--postgres-only"]),
        ("StorageTool format", ["--kafka-only"]),
        ("kafka.Kafka", []),
    ],
)
def test_an_owner_killed_in_any_phase_leaves_nothing_and_the_next_start_is_whole(
    place: Path, phase: str, options: list[str]
) -> None:
    lend_jars(place / "mailstreams")
    if phase == "kafka.Kafka":
        lend_prepared_data(place / "mailstreams")
    before = detached_segments()
    owner = start_run(place, *options)
    eventually(lambda: any(phase in line for line in command_lines(place).values()))
    owner.kill()
    owner.wait()
    runs = place / "mailstreams" / "runs"
    eventually(lambda: not command_lines(place) and not any(map(is_locked, runs.glob("run-*"))))
    # One of another worker, killed at this moment, is removed in the next.
    eventually(lambda: detached_segments() <= before)
    settings = ServerSettings(
        kafka="--kafka-only" in options,
        postgres="--kafka-only" not in options,
        cache_directory=place / "mailstreams",
    )
    with devservers.running(settings) as servers:
        assert all(server.alive for server in servers.local)
        assert (
            len(list((place / "mailstreams" / "runs").glob("run-*"))) == 1
        )  # the killed one is gone
    assert list((place / "mailstreams" / "runs").glob("run-*")) == []


def test_a_command_ends_with_its_killed_run_and_so_do_the_servers(place: Path) -> None:
    lend_prepared_data(place / "mailstreams")
    owner = start_run(place, "--postgres-only")
    eventually(lambda: any("sleep 1000" in line for line in children_of(owner.pid)))
    assert len(command_lines(place)) > 2
    owner.kill()
    owner.wait()
    eventually(lambda: not command_lines(place))


def test_a_run_that_is_alive_keeps_its_data_while_another_starts(place: Path) -> None:
    lend_prepared_data(place)
    settings = ServerSettings(kafka=False, cache_directory=place)
    with devservers.running(settings) as first:
        with devservers.running(settings) as second:
            assert first.postgres.dsn != second.postgres.dsn
        assert first.postgres.alive
        assert (first.local[0].directory / "PG_VERSION").exists()


def test_run_passes_addresses_and_exit_code_on() -> None:
    command = [sys.executable, "-m", "devservers", "run", "--postgres-only", "--", "sh", "-c"]
    ended = subprocess.run(
        [*command, 'echo "$MAILSTREAMS_POSTGRES_DSN"; exit 7'],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert ended.returncode == 7
    assert ended.stdout.startswith("postgresql://mailstreams@127.0.0.1:")
    assert ended.stderr == ""


# Ordinary users


SCRIPT = """
import os, psycopg, devservers
from devservers import ServerSettings
assert os.geteuid() != 0
with devservers.running(ServerSettings()) as servers:
    psycopg.connect(servers.postgres.dsn).close()
    servers.postgres.kill()
    servers.postgres.start()
    print("served", servers.environment(), flush=True)
"""


def reachable_python(user: Account) -> str | None:
    """A Python of our version that the user may run."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [sys.executable, shutil.which(version, path=os.defpath)]
    return next((found for found in candidates if found and may_enter(Path(found), user)), None)


def reachable_packages(user: Account, place: Path) -> Path:
    """The installed packages where the user may read them."""
    packages = Path(sysconfig.get_path("purelib"))
    if may_enter(packages, user):
        return packages

    def link_or_copy(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    return Path(shutil.copytree(packages, place / "packages", copy_function=link_or_copy))


def test_an_ordinary_user_needs_nothing_but_the_packages(place: Path) -> None:
    user = ORDINARY if os.geteuid() == 0 else None
    python = sys.executable if user is None else reachable_python(user)
    if python is None:
        pytest.skip("no Python of this version can be run by an ordinary user")
    checkout, home = place / "a checkout", place / "a home"
    shutil.copytree(REPOSITORY / "devservers", checkout / "devservers")
    shutil.copy(REPOSITORY / "docker-compose.yml", checkout)
    home.mkdir()
    lend_jars(home / ".cache" / "mailstreams")
    give_to(home, user)
    packages = "" if user is None else str(reachable_packages(user, place))
    environment = {
        "HOME": str(home),
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join([str(checkout), packages or python_path()]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    log = place / "log"
    with spawn(
        [python, "-W", "error", "-c", SCRIPT],
        name="an ordinary user",
        log_path=log,
        env=environment,
        cwd=home,
        account=user,
    ) as process:
        code = process.wait(150)
    assert code == 0, log.read_text()
    assert log.read_text().startswith("served {'MAILSTREAMS_POSTGRES_DSN': ")
    assert list((home / ".cache" / "mailstreams" / "runs").glob("run-*")) == []
