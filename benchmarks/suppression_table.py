"""The suppression table of a sender: memory of ten million entries, exactness, look-ups, and how fast it loads from Kafka."""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import devservers
from benchmarks import machine
from benchmarks.suppression_records import beat, produce, records
from streams.adapters.kafka import create_topics
from streams.adapters.kafka_suppressions import KafkaSuppressions
from streams.domain.addresses import RecipientKey
from streams.domain.partitioner import positive_hashes
from streams.domain.suppressions import SuppressionPage, SuppressionSet
from streams.domain.topics import Lane, Topics
from streams.suppression_table import SuppressionTable

NAME: Final = "suppression_table"
TARGET_BYTES: Final = 1_000_000_000
TARGET_PER_SECOND: Final = 300_000
PARTITIONS: Final = 12
PAGE: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """entries in memory; records in the topic that is loaded."""

    entries: int
    loaded: int


FULL: Final = Sizes(entries=10_000_000, loaded=1_000_000)
QUICK: Final = Sizes(entries=20_000, loaded=5_000)


def run(*, quick: bool) -> dict[str, Any]:
    """The numbers; what is measured is told on the way."""
    sizes = QUICK if quick else FULL
    print(f"{sizes.entries} entries in a process of their own", flush=True)
    held = subprocess.run(
        [sys.executable, "-m", "benchmarks.suppression_table", str(sizes.entries)],
        stdout=subprocess.PIPE,
        check=True,
    )
    print(f"{sizes.loaded} records are produced and loaded", flush=True)
    loaded = asyncio.run(_load(sizes.loaded))
    return {
        "benchmark": NAME,
        "quick": quick,
        "target_bytes": TARGET_BYTES,
        "target_records_per_s": TARGET_PER_SECOND,
        **json.loads(held.stdout),
        **loaded,
        **machine.description(),
    }


# In memory ------------------------------------------------------------------------------------------------------------


def hold(entries: int) -> dict[str, Any]:
    """The memory of a process with so many entries, and what a look-up costs in it."""
    before = _resident()
    sets = [SuppressionSet() for _ in range(PARTITIONS)]
    source, applying, longest = records(entries), 0.0, 0.0
    while page := list(islice(source, PAGE)):
        for number, part in _by_partition(page):
            begun, wall = time.process_time(), time.monotonic()
            sets[number].apply(part)
            applying += time.process_time() - begun
            longest = max(longest, time.monotonic() - wall)
    wrong, lookup_us = _ask(sets, entries)
    resident = _resident()
    return {
        "entries": sum(map(len, sets)),
        "wrong_answers": wrong,
        "resident_bytes": resident,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "bytes_an_entry": round((resident - before) / entries, 1),
        "apply_us_a_record": round(applying / entries * 1e6, 2),
        "longest_apply_ms": round(longest * 1000, 1),
        "lookup_us": lookup_us,
    }


def _by_partition(page: Sequence[tuple[bytes, bytes, bytes]]) -> list[tuple[int, SuppressionPage]]:
    columns: list[list[tuple[bytes, bytes, bytes]]] = [[] for _ in range(PARTITIONS)]
    for record, hashed in zip(page, positive_hashes([key for key, _, _ in page]), strict=True):
        columns[hashed % PARTITIONS].append(record)
    return [
        (number, SuppressionPage(number, 0, range(len(part)), *map(list, zip(*part, strict=True))))
        for number, part in enumerate(columns)
        if part
    ]


def _ask(sets: Sequence[SuppressionSet], entries: int) -> tuple[int, float]:
    """Every entry at small sizes, some at large ones, and as many that are not there: wrong answers, and a look-up's time."""
    step = max(entries // 100_000, 1)
    present = [(key, int(seq)) for key, _, seq in islice(records(entries), 0, None, step)]
    absent = [(key, None) for key, _, _ in records(len(present), seed=2)]
    asked: list[tuple[bytes, int | None]] = [*present, *absent]
    numbers = [hashed % PARTITIONS for hashed in positive_hashes([key for key, _ in asked])]
    keys = [RecipientKey(key.decode()) for key, _ in asked]
    begun = time.process_time()
    found = [sets[n].hit(key, "shop", Lane.BULK, 0.0) for n, key in zip(numbers, keys, strict=True)]
    spent = time.process_time() - begun
    wrong = sum(answer != right for answer, (_, right) in zip(found, asked, strict=True))
    return wrong, round(spent / len(asked) * 1e6, 2)


def _resident() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


# From Kafka -----------------------------------------------------------------------------------------------------------


async def _load(count: int) -> dict[str, Any]:
    with devservers.running() as servers:
        kafka = servers.kafka.bootstrap_servers
        topics = Topics(prefix=f"bench-{time.time_ns()}.")
        await create_topics(kafka, topics, partitions=PARTITIONS, replication_factor=1)
        await produce(kafka, topics.suppressions, count, partitions=PARTITIONS)
        now = datetime.now(UTC).isoformat()
        await beat(kafka, topics.suppressions, now, partitions=PARTITIONS)
        table = SuppressionTable(
            KafkaSuppressions(kafka, topics.suppressions, client_id="benchmark"), staleness_s=3600
        )
        table.own(frozenset(range(PARTITIONS)))
        begun, cpu = time.monotonic(), time.process_time()
        while table.missing() is not None:
            await table.follow()
        wall, used = time.monotonic() - begun, time.process_time() - cpu
        await table.stop()
    return {
        "loaded_records": count,
        "load_s": round(wall, 2),
        "load_records_per_s": round(count / wall),
        "load_cpu_us_a_record": round(used / count * 1e6, 2),
    }


if __name__ == "__main__":
    print(json.dumps(hold(int(sys.argv[1]))))
