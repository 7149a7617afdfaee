"""The development servers as their users meet them: started, stopped, killed, found, refused."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import devservers
from devservers import Servers, ServerSettings, Source, postgres_install
from devservers.errors import AlreadyRunning, ExternalServer, NotStarted, PortBusy, StartFailed
from devservers.places import postgres_account
from devservers.postgres_install import find_postgres, wheel_programs
from tests.integration.process_table import (
    command_lines,
    detached_segments,
    eventually,
    open_place,
)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

REPOSITORY = Path(__file__).parents[2]
POSTGRES_ONLY = ServerSettings(kafka=False)


@pytest.fixture(autouse=True, scope="module")
def _local_servers_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MAILSTREAMS_")]:
            patch.delenv(name)
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty place for caches and data; no process may be left in it."""
    with open_place() as path:
        yield path


async def topics_of(bootstrap_servers: str, *, create: str | None = None) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        if create is not None:
            await admin.create_topics([NewTopic(create, num_partitions=1, replication_factor=1)])
        topics: list[str] = await admin.list_topics()
        return topics
    finally:
        await admin.close()


def row_count(dsn: str) -> int:
    with psycopg.connect(dsn, connect_timeout=5) as connection:
        found = connection.execute("select count(*) from kept").fetchone()
    assert found is not None
    return int(found[0])


def insert_row(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("create table if not exists kept (id int)")
        connection.execute("insert into kept values (1)")


@pytest.fixture(scope="module")
def running_servers() -> Iterator[Servers]:
    with devservers.running() as servers:
        yield servers


def test_postgres_decodes_logically_and_keeps_what_is_committed(running_servers: Servers) -> None:
    with psycopg.connect(running_servers.postgres.dsn) as connection:
        settings: dict[str, str] = dict(
            connection.execute("select name, setting from pg_settings").fetchall()
        )
    assert settings["wal_level"] == "logical"
    assert settings["fsync"] == settings["synchronous_commit"] == "on"
    assert settings["listen_addresses"] == "127.0.0.1"
    assert int(settings["max_connections"]) >= 200
    assert int(settings["max_replication_slots"]) >= 20


def test_postgres_keeps_port_and_data_over_stop_and_kill(running_servers: Servers) -> None:
    postgres = running_servers.postgres
    dsn, before = postgres.dsn, detached_segments()
    insert_row(dsn)
    postgres.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn, connect_timeout=5)
    postgres.start()
    insert_row(dsn)
    postgres.kill()
    # One of another worker, killed at this moment, is removed in the next.
    eventually(lambda: detached_segments() <= before)
    postgres.start()
    assert (postgres.dsn, row_count(dsn)) == (dsn, 2)


def test_kafka_keeps_port_and_topics_over_stop_and_kill(running_servers: Servers) -> None:
    kafka = running_servers.kafka
    address = kafka.bootstrap_servers
    assert "one" in asyncio.run(topics_of(address, create="one"))
    kafka.kill()
    assert not kafka.alive
    kafka.start()
    assert {"one", "two"} <= set(asyncio.run(topics_of(address, create="two")))
    kafka.stop()
    kafka.start()
    assert {"one", "two"} <= set(asyncio.run(topics_of(kafka.bootstrap_servers)))
    assert kafka.bootstrap_servers == address


def test_frozen_servers_answer_again_after_cont(running_servers: Servers) -> None:
    postgres, kafka = running_servers.postgres, running_servers.kafka
    postgres.pause()
    kafka.pause()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres.dsn, connect_timeout=2)
    assert postgres.alive
    assert kafka.alive
    postgres.cont()
    kafka.cont()
    psycopg.connect(postgres.dsn, connect_timeout=10).close()
    assert isinstance(asyncio.run(topics_of(kafka.bootstrap_servers)), list)


def test_a_database_is_a_copy_of_its_template_and_is_dropped_with_its_slot(
    running_servers: Servers,
) -> None:
    postgres = running_servers.postgres
    insert_row(postgres.create_database("template one"))
    dsn = postgres.create_database("copy one", template="template one")
    assert row_count(dsn) == 1
    with psycopg.connect(dsn) as connection:
        connection.execute("select pg_create_logical_replication_slot('copy_slot', 'pgoutput')")
    postgres.drop_database("copy one")
    postgres.drop_database("template one")
    postgres.drop_database("never made")
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("select slot_name from pg_replication_slots").fetchall() == []


def test_given_addresses_are_used_and_those_servers_are_not_ours_to_end(
    running_servers: Servers,
) -> None:
    given = running_servers.environment()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        with devservers.running() as servers:
            assert servers.environment() == given
            assert servers.local == ()
            for act in (servers.postgres.stop, servers.postgres.kill, servers.kafka.pause):
                with pytest.raises(ExternalServer, match="not ours"):
                    act()
    assert running_servers.postgres.alive
    assert running_servers.kafka.alive


def test_a_server_that_was_left_out_is_named() -> None:
    with (
        devservers.running(POSTGRES_ONLY) as servers,
        pytest.raises(NotStarted, match="kafka=True"),
    ):
        _ = servers.kafka


def test_a_busy_port_is_one_sentence_and_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortBusy, match=str(port)):
            Servers(ServerSettings(kafka=False, postgres_port=port)).start()
        command = [sys.executable, "-m", "devservers", "run", f"--postgres-port={port}", "true"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert str(port) in ended.stderr


def test_a_wrong_option_is_reported_in_the_words_of_the_server() -> None:
    settings = ServerSettings(kafka=False, postgres_options={"work_mem": "plenty"})
    with pytest.raises(StartFailed, match=r"mailstreams.conf.* contains errors \(the log is "):
        Servers(settings).start()


def test_one_data_directory_serves_one_run_at_a_time(place: Path) -> None:
    settings = ServerSettings(kafka=False, data_directory=place / "data")
    with devservers.running(settings) as servers:
        insert_row(servers.postgres.dsn)
        with pytest.raises(AlreadyRunning):
            Servers(settings).start()
    with devservers.running(settings) as servers:
        assert row_count(servers.postgres.dsn) == 1


@pytest.mark.parametrize("source", [Source.SYSTEM, Source.WHEEL])
def test_either_source_of_postgres_works_in_a_place_with_a_space(
    place: Path, source: Source
) -> None:
    try:
        found = find_postgres(source, place, postgres_account())
    except devservers.DevServersError:
        pytest.skip(f"no PostgreSQL of the kind {source} is installed")
    settings = ServerSettings(kafka=False, postgres_source=source, cache_directory=place / "cache")
    with devservers.running(settings) as servers:
        assert isinstance(servers.postgres.pid, int)
        with psycopg.connect(servers.postgres.dsn) as connection:
            row = connection.execute(
                "select current_setting('server_version'), lower('É')"
            ).fetchone()
    assert row is not None
    assert row[0].startswith(found.version)
    assert row[1] == "é"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_a_wheel_that_only_root_can_reach_is_copied(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = wheel_programs()
    assert programs is not None
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700)
    shutil.copytree(programs.parent, hidden / "pginstall", symlinks=True)
    monkeypatch.setattr(postgres_install, "wheel_programs", lambda: hidden / "pginstall" / "bin")
    settings = ServerSettings(
        kafka=False, postgres_source=Source.WHEEL, cache_directory=place / "cache"
    )
    with devservers.running(settings) as servers:
        lines = command_lines(place / "cache").values()
        assert any(line.startswith(str(place / "cache" / "postgres-wheel")) for line in lines)
        assert servers.postgres.alive
