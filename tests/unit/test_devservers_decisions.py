"""What the development servers decide without starting anything."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devservers import connect
from devservers.containers import dsn_of, services
from devservers.errors import PrerequisiteMissing
from devservers.jars import LOCK_FILE, kafka_version, locked_jars, read_lock
from devservers.kafka import escaped
from devservers.localserver import last_words
from devservers.places import may_enter, memory_directory, runs_directory
from devservers.processes import Account
from devservers.settings import DEV_MAVEN, Kind, ServerSettings, Source, kind_of
from devservers.state import ENVIRONMENT, State, Status, forget, read_state, write_exports

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
SOMEBODY = Account(name="nobody", uid=os.geteuid() + 54_321, gid=54_321)


def test_each_address_of_the_environment_wins_on_its_own() -> None:
    settings = ServerSettings().with_environment(
        {"MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": "192.0.2.1:9092"}
    )
    assert settings.kafka_bootstrap_servers == "192.0.2.1:9092"
    assert settings.postgres_dsn is None


def test_an_empty_address_counts_as_none() -> None:
    assert ServerSettings().with_environment({"MAILSTREAMS_POSTGRES_DSN": ""}).postgres_dsn is None


def test_what_the_caller_chose_is_not_changed_by_the_environment() -> None:
    chosen = ServerSettings(postgres_source=Source.WHEEL)
    found = chosen.with_environment({"MAILSTREAMS_DEV_POSTGRES": "system"})
    assert found.postgres_source is Source.WHEEL


@pytest.mark.parametrize("variable", ["MAILSTREAMS_DEV_POSTGRES", "MAILSTREAMS_DEV_JAVA"])
def test_an_unknown_source_is_refused_with_the_words_that_are_known(variable: str) -> None:
    with pytest.raises(PrerequisiteMissing, match="system or wheel"):
        ServerSettings().with_environment({variable: "docker"})


def test_servers_are_local_unless_containers_are_asked_for() -> None:
    assert kind_of({}) is Kind.LOCAL
    assert kind_of({"MAILSTREAMS_SERVERS": "testcontainers"}) is Kind.TESTCONTAINERS
    with pytest.raises(PrerequisiteMissing, match="local or testcontainers"):
        kind_of({"MAILSTREAMS_SERVERS": "docker"})


def test_a_lock_line_is_coordinates_and_a_digest() -> None:
    (jar,) = read_lock("com.example:some-thing:1.2.3 sha256:00ff\n\n")
    assert (jar.group, jar.filename, jar.sha256) == ("com.example", "some-thing-1.2.3.jar", "00ff")


@pytest.mark.parametrize("lock", [LOCK_FILE, connect.LOCK_FILE])
def test_every_jar_is_locked_by_a_whole_digest_and_named_once(lock: Path) -> None:
    jars = locked_jars(lock)
    assert {len(jar.sha256) for jar in jars} == {64}
    assert len({jar.filename for jar in jars}) == len(jars)


def test_the_locks_name_the_versions_that_belong_together() -> None:
    assert kafka_version(locked_jars()) == "4.4.0"
    versions = {jar.artifact: jar.version for jar in locked_jars(connect.LOCK_FILE)}
    # This Debezium does not run on the Connect of Kafka 4.4.
    assert (versions["connect-runtime"], versions["debezium-connector-postgres"]) == (
        "4.3.0",
        "3.6.1.Final",
    )


def test_where_there_is_no_maven_connect_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(DEV_MAVEN, connect.NO_MAVEN)
    with pytest.raises(PrerequisiteMissing, match=f"unset {DEV_MAVEN}"):
        connect.install_connect(ServerSettings(), tmp_path)


@pytest.mark.parametrize(
    ("value", "written"),
    [("plain", "plain"), (r"a\b", r"a\\b"), ("ü", r"\u00fc"), ("𝄞", r"\ud834\udd1e")],
)
def test_values_are_written_as_java_reads_them(value: str, written: str) -> None:
    assert escaped(value) == written


def test_the_line_that_speaks_of_an_error_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("starting\nFATAL:  could not bind.\nshut down\n\n")
    assert last_words(log) == "FATAL:  could not bind"


def test_an_empty_log_says_so(tmp_path: Path) -> None:
    assert last_words(tmp_path / "absent") == "its log is empty"


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that everybody may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_folder_of_its_owner_alone_cannot_be_entered_by_others(open_place: Path) -> None:
    closed = open_place / "closed"
    assert may_enter(closed / "below", SOMEBODY)
    closed.mkdir(mode=0o700)
    assert not may_enter(closed / "below", SOMEBODY)
    assert may_enter(closed / "below", None)


def test_a_program_that_others_may_not_run_counts_as_not_entered(open_place: Path) -> None:
    program = open_place / "program"
    program.touch(mode=0o755)
    assert may_enter(program, SOMEBODY)
    program.chmod(0o744)
    assert not may_enter(program, SOMEBODY)


def test_data_that_are_thrown_away_go_where_the_environment_says(open_place: Path) -> None:
    environment = {"MAILSTREAMS_DEV_RUNS": str(open_place)}
    chosen = ServerSettings().with_environment(environment).runs_directory
    assert runs_directory(chosen, Path("/cache"), SOMEBODY) == open_place
    unset = ServerSettings().with_environment({}).runs_directory
    assert runs_directory(unset, Path("/cache"), SOMEBODY) == Path("/cache/runs")
    open_place.chmod(0o700)
    with pytest.raises(PrerequisiteMissing, match="another MAILSTREAMS_DEV_RUNS"):
        runs_directory(chosen, Path("/cache"), SOMEBODY)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_data_lie_in_memory_only_where_there_is_plenty(open_place: Path) -> None:
    found = memory_directory(open_place, needed=1)
    assert found is not None
    assert (found.parent, stat.S_IMODE(found.stat().st_mode)) == (open_place, 0o711)
    assert memory_directory(open_place, needed=1) == found
    assert memory_directory(open_place, needed=1 << 60) is None
    assert memory_directory(open_place / "absent", needed=1) is None
    found.rmdir()
    found.symlink_to(open_place)
    assert memory_directory(open_place, needed=1) is None


def test_a_state_file_is_for_its_owner_alone_and_reads_as_written(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = State(pid=7, started="then", status=Status.READY, environment={"A": "b"})
    state.write(path)
    assert read_state(path) == state
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"status": "asleep"}'])
def test_a_state_file_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    assert read_state(path) is None


def test_the_environment_file_gives_a_shell_every_value_as_it_is_and_goes(tmp_path: Path) -> None:
    path = tmp_path / ENVIRONMENT
    values = {"A": 'it\'s $HOME `id` \\ "x"', "B": "", "C": "two\nlines; exit 3"}
    write_exports(path, values)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    script = '. "$0"; printf "%s\\0%s\\0%s" "$A" "$B" "$C"'
    read = subprocess.run(
        ["/bin/sh", "-c", script, path], capture_output=True, text=True, check=True
    )
    assert read.stdout.split("\0") == list(values.values())
    forget(tmp_path)
    assert not path.exists()


def test_a_recycled_process_id_is_not_signalled(tmp_path: Path) -> None:
    assert not State(pid=os.getpid(), started="another time", status=Status.READY).signal(0)


def test_the_compose_file_listens_on_loopback_only_and_says_what_to_export() -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    described = services(5432, 9092)
    for service in described.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert "healthcheck" in service
    assert f"export MAILSTREAMS_POSTGRES_DSN={dsn_of(described['postgres'], 5432)}\n" in text
    assert "export MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:9092\n" in text
    assert "wal_level=logical" in described["postgres"]["command"]


def test_the_broker_of_the_compose_file_is_the_locked_one_and_advertises_its_port() -> None:
    kafka = services(1, 23456)["kafka"]
    assert kafka["image"] == f"apache/kafka:{kafka_version(locked_jars())}"
    assert kafka["ports"] == ["127.0.0.1:23456:23456"]
    assert kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:23456"
    assert kafka["environment"]["KAFKA_LISTENERS"].startswith("PLAINTEXT://:23456,")
