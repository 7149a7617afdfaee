"""A rolling restart of four senders under load: how long the flow stands still, of all and of one partition, and what is sent twice."""

import asyncio
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psycopg

import devservers
from benchmarks import machine
from benchmarks.suppression_records import produce
from demo.system import NotWorking, System
from devservers.processes import Supervised
from streams.adapters.kafka import create_topics
from streams.domain.partitioner import partition_of
from streams.domain.topics import Topics

NAME: Final = "rolling_restart"
TARGET_GAP_S: Final = 3.0
PARTITIONS: Final = 12
TICK_S: Final = 0.05
SETTLE_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much there is, and how long it flows before, between and after restarts."""

    senders: int
    suppressions: int
    per_second: int
    pause_s: float


FULL: Final = Sizes(senders=4, suppressions=1_000_000, per_second=100, pause_s=10.0)
QUICK: Final = Sizes(senders=2, suppressions=2_000, per_second=20, pause_s=1.0)


class Replicas(System):
    """Senders whose names are theirs for good."""

    named = True

    def _spawn(self, name: str, arguments: list[str]) -> Supervised:
        self._environment["MAILSTREAMS_SENDER_INSTANCE_ID"] = name if self.named else "none"
        return super()._spawn(name, arguments)


def run(*, quick: bool) -> dict[str, Any]:
    """The numbers; what is done is told on the way."""
    sizes = QUICK if quick else FULL
    runs = {"named": measure(sizes, named=True)}
    if not quick:
        runs["unnamed"] = measure(sizes, named=False)
    return {
        "benchmark": NAME,
        "quick": quick,
        "target_gap_s": TARGET_GAP_S,
        "senders": sizes.senders,
        "suppressions": sizes.suppressions,
        "per_second": sizes.per_second,
        **runs["named"],
        **({"without_names": runs["unnamed"]} if "unnamed" in runs else {}),
        **machine.description(),
    }


def measure(sizes: Sizes, *, named: bool) -> dict[str, Any]:
    """One rolling restart."""
    names = [f"sender-{n}" for n in range(sizes.senders)]
    with (
        devservers.running() as servers,
        tempfile.TemporaryDirectory(prefix="mailstreams-bench-") as folder,
    ):
        name = f"bench_{time.time_ns()}"
        dsn = servers.postgres.create_database(name)
        try:
            _fill(servers.kafka.bootstrap_servers, f"{name}.", sizes.suppressions)
            system = Replicas(
                servers,
                dsn=dsn,
                directory=Path(folder),
                topic_prefix=f"{name}.",
                stages=("relay", "scheduler", "events", "recipients", *names),
                settings={
                    "MAILSTREAMS_PARTITIONS": str(PARTITIONS),
                    "MAILSTREAMS_RELAY_SLOT": name,
                    "MAILSTREAMS_PROVIDER_LIST": "false",
                },
            )
            system.named = named
            with system:
                return _restart_all(system, names, sizes)
        finally:
            servers.postgres.drop_database(name)


def _fill(bootstrap_servers: str, prefix: str, suppressions: int) -> None:
    topics = Topics(prefix=prefix)

    async def work() -> None:
        await create_topics(bootstrap_servers, topics, partitions=PARTITIONS, replication_factor=-1)
        await produce(bootstrap_servers, topics.suppressions, suppressions, partitions=PARTITIONS)

    print(f"{suppressions} suppressions are put into the topic", flush=True)
    asyncio.run(work())


def _restart_all(system: Replicas, names: Sequence[str], sizes: Sizes) -> dict[str, Any]:
    away: list[float] = []
    stopping: list[float] = []
    with _load(system.dsn, sizes.per_second) as sent:
        time.sleep(sizes.pause_s)
        for name in names:
            begun = time.monotonic()
            system.stop(name)
            stopping.append(time.monotonic() - begun)
            system.start(name)
            system.wait_ready(name, 120.0)
            away.append(time.monotonic() - begun)
            print(f"{name} is back after {away[-1]:.1f} s", flush=True)
            time.sleep(sizes.pause_s)
    system.wait_for(
        lambda: len(system.ledger()) >= len(sent), "all mail to be sent", timeout_s=SETTLE_S
    )
    # What a busy machine answered too late is settled by its events.
    with suppress(NotWorking):
        system.wait_for(
            lambda: _unsettled(system.dsn) == 0, "all mail to be settled", timeout_s=SETTLE_S
        )
    return {
        **_judge(system, sent),
        "stop_s": [round(s, 1) for s in stopping],
        "restart_s": [round(s, 1) for s in away],
    }


def _unsettled(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM email_outbox WHERE state IN ('pending', 'sending', 'ambiguous')"
        )
        return int((found.fetchone() or (0,))[0])


@contextmanager
def _load(dsn: str, per_second: int) -> Iterator[dict[str, float]]:
    """Mail in a steady flow, each to a recipient of its own: when each was committed."""
    sent: dict[str, float] = {}
    stopping = threading.Event()

    def work() -> None:
        due, count = time.monotonic(), 0
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not stopping.wait(max(due - time.monotonic(), 0.0)):
                due += TICK_S
                much = round(per_second * TICK_S)
                found = connection.execute(
                    "INSERT INTO email_outbox (recipient, sender, subject, text) SELECT 'user' || n || '@example.com', "
                    "'shop@example.com', 'Hello', 'Hi' FROM generate_series(%s::int, %s::int) AS n RETURNING id",
                    (count, count + much - 1),
                ).fetchall()
                count += much
                sent.update(dict.fromkeys((str(row[0]) for row in found), time.time()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield sent
    finally:
        stopping.set()
        thread.join()


def _judge(system: Replicas, sent: dict[str, float]) -> dict[str, Any]:
    ledger = system.ledger()
    times = {str(call["outbox"]): _seconds(call["accepted_at"]) for call in ledger}
    with psycopg.connect(system.dsn, autocommit=True) as connection:
        rows = connection.execute("SELECT id::text, recipient_key, state FROM email_outbox")
        found = [(str(id_), str(key), str(state)) for id_, key, state in rows.fetchall()]
    partitions: dict[int, list[float]] = defaultdict(list)
    for id_, key, _ in found:
        if id_ in times:
            partitions[partition_of(key.encode(), PARTITIONS)].append(times[id_])
    late = sorted(times[id_] - at for id_, at in sent.items() if id_ in times)
    accepted = Counter(str(call["outbox"]) for call in ledger)
    return {
        "sent": len(sent),
        "not_sent": len(sent.keys() - times.keys()),
        "duplicates": sum(n - 1 for n in accepted.values()),
        "states": dict(Counter(state for _, _, state in found)),
        "longest_gap_s": _longest(list(times.values())),
        "longest_gap_of_a_partition_s": max(map(_longest, partitions.values()), default=0.0),
        "commit_to_ses_p50_s": _quantile(late, 0.5),
        "commit_to_ses_p99_s": _quantile(late, 0.99),
        "commit_to_ses_longest_s": _quantile(late, 1.0),
    }


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _longest(times: list[float]) -> float:
    return round(max((b - a for a, b in pairwise(sorted(times))), default=0.0), 2)


def _quantile(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return 0.0
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2)
