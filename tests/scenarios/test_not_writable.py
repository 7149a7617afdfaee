"""PostgreSQL read-only or with a full disk, Kafka that takes no records: every stage says why, nothing is lost, all goes on by itself."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from aiokafka.admin.config_resource import ConfigResourceType

from devservers.places import postgres_account
from streams.domain.topics import Topics
from tests.scenarios.conftest import Place
from tests.scenarios.scene import Scene, scene_on
from tests.scenarios.topics import configure

pytestmark = [pytest.mark.servers, pytest.mark.timeout(420)]

STAGES: Final = ("relay", "recipients", "scheduler", "sender")
MB: Final = 1024 * 1024


@contextmanager
def under_way(scene: Scene, count: int) -> Iterator[list[str]]:
    """So many calls that SES has taken and not answered while the block runs; the answers and events come at its end."""
    scene.control("hold", answers=True, events=True)
    ids = scene.commit(f"held-{n}@example.com" for n in range(count))
    scene.wait_for(
        lambda: scene.simulator_state()["held"] == count, "calls under way", timeout_s=60
    )
    yield ids
    scene.control("hold", answers=False, events=False)


def told(scene: Scene, stage: str, words: str) -> bool:
    """Whether the stage says so in its readiness."""
    process = "sender-1" if stage == "sender" else "around"
    return any(
        name.startswith(f"{stage}.") and words in why
        for name, why in scene.missing(process).items()
    )


def all_told(scene: Scene, stages: tuple[str, ...], words: str) -> Callable[[], bool]:
    """Whether each of them has said it by now; one duty may say so for a moment only."""
    silent = set(stages)

    def ask() -> bool:
        silent.difference_update({stage for stage in silent if told(scene, stage, words)})
        return not silent

    return ask


def goes_on(scene: Scene, ids: list[str]) -> None:
    """Everything is sent, once, and every stage is ready and still the same process."""
    scene.wait_submitted(ids, 150)
    scene.assert_each_accepted_once(ids)
    for name in ("around", "sender-1"):
        scene.wait_ready(name, 60)
        assert len(scene.said(name, "process.started")) == 1


def test_while_postgresql_is_read_only_every_stage_says_so_and_goes_on_afterwards(
    place: Place, tmp_path: Path
) -> None:
    with scene_on(place.servers, tmp_path) as scene:
        scene.run_around()
        with scene.senders("sender-1"):
            ids = scene.commit(f"before-{n}@example.com" for n in range(10))
            scene.wait_submitted(ids, 60)
            with under_way(scene, 10) as held:
                read_only(scene, "on")
            try:
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                    scene.commit(["refused@example.com"])
                scene.wait_for(
                    all_told(scene, STAGES, "default_transaction_read_only"),
                    "every stage to say what is wrong",
                    timeout_s=60,
                )
            finally:
                read_only(scene, "off")
            ids += [*held, *scene.commit(["after@example.com"])]
            goes_on(scene, ids)


def read_only(scene: Scene, value: str) -> None:
    """Of the whole server, open sessions too."""
    with scene.connect() as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        connection.execute("SELECT pg_reload_conf()")
    scene.wait_for(lambda: scene.value("SHOW default_transaction_read_only") == value, value)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 64 MB that PostgreSQL may use; skips where none may be mounted."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or unmount is None:
        pytest.skip("only root can mount a small file system")
    directory = Path(tempfile.mkdtemp(prefix="small-disk-", dir="/tmp"))
    command = [mount, "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        directory.rmdir()
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    try:
        data = directory / "tablespace"
        data.mkdir(mode=0o700)
        if (account := postgres_account()) is not None:
            os.chown(data, account.uid, account.gid)
        yield directory
    finally:
        subprocess.run([unmount, "-l", str(directory)], check=True)
        directory.rmdir()


def test_while_the_disk_of_postgresql_is_full_every_stage_says_so_and_goes_on_afterwards(
    place: Place, tmp_path: Path, small_disk: Path
) -> None:
    with psycopg.connect(place.servers.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{small_disk / 'tablespace'}'")
    try:
        with scene_on(place.servers, tmp_path, tablespace="small") as scene:
            scene.run_around()
            with scene.senders("sender-1"):
                ids = scene.commit(f"before-{n}@example.com" for n in range(10))
                scene.wait_submitted(ids, 60)
                with under_way(scene, 10) as held:
                    fill(small_disk)
                ids += held
                try:
                    # Free space inside of files that are there already lasts for a while.
                    use_up(scene, ids)
                    scene.wait_for(
                        all_told(scene, ("scheduler",), "make room"),
                        "the scheduler to say what is wrong",
                        timeout_s=60,
                    )
                finally:
                    (small_disk / "ballast").unlink()
                ids += scene.commit(["after@example.com"])
                goes_on(scene, ids)
    finally:
        with psycopg.connect(place.servers.postgres.dsn, autocommit=True) as connection:
            connection.execute("DROP TABLESPACE small")


def fill(disk: Path) -> None:
    """A file takes all the room that is left."""
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"\0" * MB):
                pass
        except OSError:
            return


def use_up(scene: Scene, ids: list[str]) -> None:
    """Commits mails until the database refuses one: its error says why."""

    def commit_on() -> None:
        for n in range(100_000):
            ids.extend(scene.commit(f"full-{n}-{m}@example.com" for m in range(100)))

    with pytest.raises(psycopg.errors.DiskFull):
        commit_on()


def test_while_kafka_takes_no_records_the_relay_says_so_and_goes_on_afterwards(
    place: Place, tmp_path: Path
) -> None:
    with scene_on(place.servers, tmp_path) as scene:
        scene.run_around()
        with scene.senders("sender-1"):
            ids = scene.commit(f"before-{n}@example.com" for n in range(10))
            scene.wait_submitted(ids, 60)
            asyncio.run(in_sync_replicas(scene, 2))
            try:
                ids += scene.commit(f"during-{n}@example.com" for n in range(10))
                scene.wait_for(
                    all_told(scene, ("relay",), "min.insync.replicas"),
                    "the relay to say what is wrong",
                    timeout_s=90,
                )
            finally:
                asyncio.run(in_sync_replicas(scene, 1))
            goes_on(scene, ids)


async def in_sync_replicas(scene: Scene, count: int) -> None:
    """As few brokers as there are cannot keep so many copies."""
    for topic, given in Topics(prefix=scene.topic_prefix).configurations().items():
        values = given | {"min.insync.replicas": str(count)}
        await configure(scene.kafka, ConfigResourceType.TOPIC, topic, values)
