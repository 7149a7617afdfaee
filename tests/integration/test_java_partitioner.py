"""A key's partition is the one that Kafka's own Java client computes, so any client finds our records."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import devservers
from devservers.jars import fetch, kafka_version, locked_jars
from devservers.java import find_java
from devservers.places import cache_directory
from devservers.settings import Source
from streams.domain.partitioner import partition_of, positive_hashes
from streams.domain.topics import Topics
from tests.conftest import PARTITIONS

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def java() -> tuple[str, str]:
    """The JVM's library and the class path."""
    cache = cache_directory(None, None)
    program = Path(find_java(Source.ANY, cache).program).resolve()
    [jvm, *_] = [
        found for name in ("libjvm.so", "libjvm.dylib") for found in program.parents[1].rglob(name)
    ]
    locked = locked_jars()
    jars = fetch(locked, cache / f"kafka-{kafka_version(locked)}" / "jars")
    return str(jvm), os.pathsep.join(map(str, jars))


def some_bytes(seed: int, length: int) -> bytes:
    return hashlib.shake_128(seed.to_bytes(4, "big")).digest(length)


def ask_java(java: tuple[str, str], cases: list[tuple[bytes, int]], *broker: str) -> list[int]:
    """JPype lives in a process of its own: a JVM never leaves the process that started it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.java_partitions", *java, *broker],
        input="".join(f"{key.hex()} {partitions}\n" for key, partitions in cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def test_the_built_in_partitioner_of_java_agrees(java: tuple[str, str]) -> None:
    cases = [(b"100:48069", 12), (b"TT0124", 15), (b"user1@example.com", 12)]
    cases += [(some_bytes(n, 16).hex().encode(), 12) for n in range(500)]
    cases += [(some_bytes(n, n % 80 + 1), n % 1000 + 1) for n in range(2000)]
    expected = ask_java(java, cases)
    assert expected[:3] == [9, 10, 7]
    hashes = positive_hashes([key for key, _ in cases])
    assert [h % n for h, (_, n) in zip(hashes, cases, strict=True)] == expected
    assert [partition_of(key, n) for key, n in cases] == expected


def test_the_producer_of_java_sends_each_key_to_that_partition(
    java: tuple[str, str], servers: devservers.Servers, topics: Topics
) -> None:
    keys = [some_bytes(n, 16).hex().encode() for n in range(200)]
    found = ask_java(
        java,
        [(key, PARTITIONS) for key in keys],
        servers.kafka.bootstrap_servers,
        topics.suppressions,
    )
    assert found == [h % PARTITIONS for h in positive_hashes(keys)]
    assert set(found) == set(range(PARTITIONS))
