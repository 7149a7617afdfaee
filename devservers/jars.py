"""Jars of Kafka and Kafka Connect: what a lock names, fetched through jgo, each checked against its SHA-256."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devservers.errors import DownloadFailed, PrerequisiteMissing

LOCK_FILE = Path(__file__).with_name("kafka.lock")
THREADS = 8
TRIES = 3
DRAFT = ".fetching-"
ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        """The name in the local directory."""
        return f"{self.artifact}-{self.version}.jar"


def read_lock(text: str) -> tuple[Jar, ...]:
    """Parse lines of `group:artifact:version sha256:HEX`."""
    jars = []
    for line in filter(None, map(str.strip, text.splitlines())):
        coordinates, digest = line.split()
        group, artifact, version = coordinates.split(":")
        jars.append(
            Jar(
                group=group,
                artifact=artifact,
                version=version,
                sha256=digest.removeprefix("sha256:"),
            )
        )
    return tuple(jars)


def kafka_version(jars: Iterable[Jar]) -> str:
    """The version of the broker in the lock."""
    return next(jar.version for jar in jars if jar.artifact.startswith("kafka_"))


def locked_jars(lock: Path = LOCK_FILE) -> tuple[Jar, ...]:
    """The jars of a lock in this package, by default the broker's."""
    return read_lock(lock.read_text(encoding="utf-8"))


def fetch(jars: Iterable[Jar], directory: Path) -> tuple[Path, ...]:
    """The jars as files of `directory`, all checked, in the lock's order; absent ones are brought.

    From the local Maven cache where it has them, else downloaded. The local Maven cache is only read.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for draft in directory.glob(f"{DRAFT}*"):  # of a run that was killed
        if time.time() - draft.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(draft, ignore_errors=True)
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            return tuple(pool.map(lambda jar: _bring(jar, directory), jars))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _bring(jar: Jar, directory: Path) -> Path:
    target = directory / jar.filename
    if has_digest(target, jar.sha256):
        return target
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=directory) as draft:
        found = _local_copy(jar) or _download(jar, Path(draft))
        copy = Path(draft, jar.filename)
        shutil.copyfile(found, copy)
        copy.replace(target)
    return target


def has_digest(path: Path, sha256: str) -> bool:
    """Whether the file is there and whole."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def _local_copy(jar: Jar) -> Path | None:
    cached: Path | None = _artifact(_maven()(), jar).cached_path
    try:
        return cached if cached is not None and has_digest(cached, jar.sha256) else None
    except OSError:
        return None


def _download(jar: Jar, draft: Path) -> Path:
    context = _maven()
    why = "it differs from the SHA-256 in the lock"
    for attempt in range(TRIES):
        try:
            repository = draft / str(attempt)
            found: Path = _artifact(context(repo_cache=repository, timeout=60), jar).resolve()
        except (RuntimeError, OSError) as error:
            why = type(error).__name__
            continue
        if has_digest(found, jar.sha256):
            return found
    raise DownloadFailed(
        f"{jar.filename} could not be fetched from Maven Central ({why}): check the network and start again, "
        "or put the file into the local Maven repository."
    )


def _maven() -> Any:
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise PrerequisiteMissing(
            "The package jgo, which fetches Kafka, is missing: install the dependency group dev."
        ) from error
    return MavenContext


def _artifact(context: Any, jar: Jar) -> Any:
    return context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
