"""PostgreSQL read-only or with a full disk: every stage says why, nothing is lost, all goes on by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.scenarios.conftest import Place
from tests.scenarios.scene import Scene, scene_on
from tests.scenarios.telling import all_told, goes_on, under_way
from tests.small_disk import fill, make_room, small_disk

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

STAGES: Final = ("relay", "recipients", "scheduler", "sender")


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
def disk() -> Iterator[Path]:
    with small_disk() as directory:
        yield directory


def test_while_the_disk_of_postgresql_is_full_every_stage_says_so_and_goes_on_afterwards(
    place: Place, tmp_path: Path, disk: Path
) -> None:
    with psycopg.connect(place.servers.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{disk / 'tablespace'}'")
    try:
        with scene_on(place.servers, tmp_path, tablespace="small") as scene:
            scene.run_around()
            with scene.senders("sender-1"):
                ids = scene.commit(f"before-{n}@example.com" for n in range(10))
                scene.wait_submitted(ids, 60)
                with under_way(scene, 10) as held:
                    fill(disk)
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
                    make_room(disk)
                ids += scene.commit(["after@example.com"])
                goes_on(scene, ids)
    finally:
        with psycopg.connect(place.servers.postgres.dsn, autocommit=True) as connection:
            connection.execute("DROP TABLESPACE small")


def use_up(scene: Scene, ids: list[str]) -> None:
    """Commits mails until the database refuses one: its error says why."""

    def commit_on() -> None:
        for n in range(100_000):
            ids.extend(scene.commit(f"full-{n}-{m}@example.com" for m in range(100)))

    with pytest.raises(psycopg.errors.DiskFull):
        commit_on()
