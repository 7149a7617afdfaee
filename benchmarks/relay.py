"""The relay beside Kafka Connect with Debezium: catching up with a backlog, and delay from COMMIT to consumer. The feed, Kafka and PostgreSQL are the same."""

import asyncio
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from benchmarks import machine
from benchmarks.relay_stand import CatchUp, RelayStand, peak_mb
from benchmarks.stage_process import StageProcess, running_stage
from devservers.connect import LocalConnect, running_connect
from devservers.debezium import shipped_configuration

NAME: Final = "relay"
ROWS: Final = 300_000
ROUNDS: Final = 3
RATE: Final = 1000
# What Debezium is quickest with; the rest of that is in the shipped configuration.
JVM: Final = ("-Xmx1g", "-XX:+UseParallelGC", "-XX:-UsePerfData")
WORKER: Final = {"offset.flush.interval.ms": "60000"}


def run(*, quick: bool, rows: int | None = None) -> dict[str, Any]:
    """The numbers; what is done is told on the way."""
    return asyncio.run(_run(quick, rows or (2_000 if quick else ROWS)))


async def _run(quick: bool, rows: int) -> dict[str, Any]:
    sizes = (100,) if quick else (1, 100)
    cases: list[dict[str, Any]] = []
    delays: dict[str, Any] = {}
    async with RelayStand() as stand:
        for size in sizes:
            with running_connect(stand.bootstrap_servers, options=WORKER, jvm=JVM) as worker:
                rounds = 2 if quick else ROUNDS
                cases.append(await _case(stand, worker, rows, size, rounds=rounds))
                if size == sizes[-1]:  # by the JVM that is warm
                    delays = await _delays(stand, worker, seconds=1 if quick else 10)
    worst = min(cases, key=lambda case: float(case["ratio_vs_debezium"]))
    return {
        "benchmark": NAME,
        "quick": quick,
        "rows": rows,
        **{name: value for name, value in worst.items() if name != "rounds"},
        **delays,
        "cases": cases,
        **machine.description(),
    }


async def _case(
    stand: RelayStand, worker: LocalConnect, rows: int, per_transaction: int, *, rounds: int
) -> dict[str, Any]:
    """Backlogs one after the other, each read by both: the relay by a new process, Debezium by one JVM that gets warm."""
    ours: list[CatchUp] = []
    theirs: list[CatchUp] = []
    memory: list[float] = []
    for number in range(rounds):
        stand.write(rows, per_transaction=per_transaction)
        before = await stand.ends(stand.relay)
        with _relay(stand) as stage:
            pid = stage.process.pid
            ours.append(await stand.catch_up(stand.relay, rows, before=before, pid=pid))
            memory.append(peak_mb(pid))
        before = await stand.ends(stand.debezium)
        _start_debezium(stand, worker)
        theirs.append(await stand.catch_up(stand.debezium, rows, before=before, pid=worker.pid))
        worker.pause_connector(NAME)
        print(
            f"{rows} rows, {per_transaction} a transaction, round {number + 1}: "
            f"relay {ours[-1].rows_per_s:.0f} rows/s, Debezium {theirs[-1].rows_per_s:.0f}",
            flush=True,
        )
    rate = statistics.median(found.rows_per_s for found in ours)
    warm = max(theirs[1:], key=lambda found: found.rows_per_s)
    return {
        "rows_per_transaction": per_transaction,
        "rows_per_s": round(rate),
        "cpu_us_per_row": round(statistics.median(found.cpu_us_per_row for found in ours), 2),
        "rss_mb": max(memory),
        "debezium_rows_per_s": round(warm.rows_per_s),
        "debezium_fresh_rows_per_s": round(theirs[0].rows_per_s),
        "debezium_cpu_us_per_row": round(warm.cpu_us_per_row, 2),
        "debezium_rss_mb": peak_mb(worker.pid),
        "ratio_vs_debezium": round(rate / warm.rows_per_s, 2),
        "ratio_vs_debezium_fresh": round(rate / theirs[0].rows_per_s, 2),
        "rounds": {
            "relay": [asdict(found) for found in ours],
            "debezium": [asdict(found) for found in theirs],
        },
    }


async def _delays(stand: RelayStand, worker: LocalConnect, *, seconds: float) -> dict[str, Any]:
    """Both at the same rate, one after the other; Debezium without lingering."""
    with _relay(stand):
        ours = await stand.delays(stand.relay, per_second=RATE, seconds=seconds)
    before = await stand.ends(stand.debezium)
    _start_debezium(stand, worker, {"producer.override.linger.ms": "0"})
    await stand.catch_up(stand.debezium, len(ours), before=before, pid=worker.pid)
    theirs = await stand.delays(stand.debezium, per_second=RATE, seconds=seconds)
    worker.pause_connector(NAME)
    return {
        "latency_ms_p50": _percentile(ours, 50),
        "latency_ms_p99": _percentile(ours, 99),
        "debezium_latency_ms_p50": _percentile(theirs, 50),
        "debezium_latency_ms_p99": _percentile(theirs, 99),
        "latency_rows_per_s": RATE,
    }


@contextmanager
def _relay(stand: RelayStand) -> Iterator[StageProcess]:
    port = stand.ports.claim(server="relay")
    with running_stage(
        "relay", environment=stand.environment(), health_port=port, directory=stand.directory
    ) as stage:
        yield stage


def _start_debezium(
    stand: RelayStand, worker: LocalConnect, changes: dict[str, str] | None = None
) -> None:
    """With the shipped configuration: a new connector, or the stopped one again."""
    found = stand.debezium
    config = shipped_configuration(stand.dsn, slot=found.slot, topic_prefix=found.prefix)
    known = NAME in worker.ask("GET", "/connectors")
    worker.configure(NAME, config | (changes or {}))
    if known:
        worker.resume_connector(NAME)
    worker.wait_until_running(NAME)


def _percentile(values: list[float], percent: int) -> float:
    return round(values[min(len(values) - 1, len(values) * percent // 100)], 2)
