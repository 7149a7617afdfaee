"""`up` and `down`: servers and processes that stay when the command has ended."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from devservers import Servers
from devservers.state import read_state
from devservers.supervisor import ProcessSpec
from tests.integration.process_table import command_lines, eventually, open_place

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

REPOSITORY = Path(__file__).parents[2]
SLEEPER = f"tests.integration.{Path(__file__).stem}:sleeper"


def sleeper(servers: Servers) -> Sequence[ProcessSpec]:
    """A process beside the servers, for the supervisor to keep running."""
    script = 'echo "with $MAILSTREAMS_POSTGRES_DSN $EXTRA"; exec sleep 1000'
    assert servers.postgres.dsn
    return [
        ProcessSpec(
            name="sleeper",
            argv=["sh", "-c", script],
            env={"EXTRA": "extra"},
            address="http://127.0.0.1:1/sleeper",
            exports={"FOR_PERSONS": "it's so"},
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """`python -m devservers` on a state directory of its own."""

    place: Path

    def run(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "devservers", command, "--state-dir", self.place, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            cwd=REPOSITORY,
        )

    def up(self, *options: str) -> str:
        started = self.run("up", *options)
        assert started.returncode == 0, started.stderr
        return started.stdout

    @property
    def dsn(self) -> str:
        state = read_state(self.place / "state.json")
        assert state is not None
        return state.environment["MAILSTREAMS_POSTGRES_DSN"]

    def pid_of(self, name: str) -> int:
        state = read_state(self.place / "state.json")
        assert state is not None
        return state.processes.get(name, 0)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[Background]:
    for name in [name for name in os.environ if name.startswith("MAILSTREAMS_")]:
        monkeypatch.delenv(name)
    with open_place() as place:
        made = Background(place=place)
        yield made
        assert made.run("down").returncode == 0


def can_connect(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def test_both_servers_stay_until_down_and_their_data_longer(background: Background) -> None:
    assert "No servers are running" in background.run("down").stdout
    printed = background.up()
    assert f"export MAILSTREAMS_POSTGRES_DSN={background.dsn}\n" in printed
    assert "export MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:" in printed
    with psycopg.connect(background.dsn) as connection:
        connection.execute("create table kept (id int)")
    again = background.up()
    assert again == printed.replace("are running:", "are running already:")
    assert "have ended" in background.run("down").stdout
    assert not command_lines(background.place)
    assert background.run("status").returncode == 3
    background.up()
    with psycopg.connect(background.dsn) as connection:
        connection.execute("select * from kept")


def test_a_killed_supervisor_leaves_nothing_but_data_and_is_not_taken_for_running(
    background: Background,
) -> None:
    background.up("--postgres-only")
    state = read_state(background.place / "state.json")
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    eventually(lambda: not command_lines(background.place))
    assert background.run("status").returncode == 3
    assert "are running:" in background.up("--postgres-only")
    assert can_connect(background.dsn)


def test_a_process_beside_the_servers_is_kept_running_and_ended_by_down(
    background: Background,
) -> None:
    printed = background.up("--postgres-only", "--processes", SLEEPER)
    assert "sleeper: http://127.0.0.1:1/sleeper" in printed
    environment = background.place / "env"
    assert f"  . '{environment}'\n" in printed  # its name has a space
    assert str(background.place / "logs") in printed
    script = '. "$0"; echo "$MAILSTREAMS_POSTGRES_DSN $FOR_PERSONS"'
    read = subprocess.run(
        ["/bin/sh", "-c", script, environment], capture_output=True, text=True, check=True
    )
    assert read.stdout == f"{background.dsn} it's so\n"
    log = background.place / "logs" / "sleeper.log"
    eventually(lambda: log.read_text() == f"with {background.dsn} extra\n")
    first = background.pid_of("sleeper")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: background.pid_of("sleeper") not in (0, first))
    background.run("down")
    assert not environment.exists()
    assert not command_lines(background.place)


def test_a_killed_postgres_is_started_again_at_the_same_address(background: Background) -> None:
    background.up("--postgres-only")
    dsn = background.dsn
    (postmaster,) = [
        pid
        for pid, line in command_lines(background.place).items()
        if "/postgres -D" in line and "watchdog" not in line
    ]
    os.kill(postmaster, signal.SIGKILL)
    eventually(lambda: postmaster not in command_lines(background.place))
    eventually(lambda: can_connect(dsn))


def test_what_fails_is_one_sentence_and_leaves_nothing_running(background: Background) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = background.run("up", "--kafka-port", str(port))
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert str(port) in failed.stderr
    assert not command_lines(background.place)
    assert not (background.place / "state.json").exists()


def test_a_recycled_process_id_in_the_state_file_is_left_alone(background: Background) -> None:
    state = {"pid": os.getpid(), "started": "another time", "status": "ready"}
    (background.place / "state.json").write_text(json.dumps(state))
    assert "No servers are running" in background.run("down").stdout
    assert not (background.place / "state.json").exists()
