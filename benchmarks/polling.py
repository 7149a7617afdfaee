"""The relay in polling mode: catching up with a backlog, and delay from COMMIT to consumer; then both beside one old snapshot, which keeps every removed row."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from benchmarks import machine
from benchmarks.relay_stand import CATCH_UP_S, CatchUp, RelayStand, peak_mb
from benchmarks.stage_process import StageProcess, running_stage
from streams.adapters.feed_index import make_feed_index
from streams.adapters.postgres import Database

NAME: Final = "polling"
ROWS: Final = 100_000
ROUNDS: Final = 3
RATE: Final = 1000
INTERVAL_MS: Final = 100
PER_TRANSACTION: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """One backlog of which every row is removed again. seconds: from the relay's start to the empty feed."""

    caught_up: CatchUp
    seconds: float


def run(*, quick: bool, rows: int | None = None) -> dict[str, Any]:
    """The numbers; what is done is told on the way."""
    return asyncio.run(_run(quick, rows or (2_000 if quick else ROWS)))


async def _run(quick: bool, rows: int) -> dict[str, Any]:
    rounds, seconds = (1, 1) if quick else (ROUNDS, 10)
    async with RelayStand() as stand:
        async with Database(stand.dsn, pool_size=1, timeout_s=300, name="benchmark") as database:
            await make_feed_index(database)
        free, memory = await _rounds(stand, rows, rounds, "")
        delays = await _delays(stand, seconds)
        with _old_snapshot(stand):
            held, _ = await _rounds(stand, rows, rounds, ", one old snapshot held")
            held_delays = await _delays(stand, seconds)
            dead = _dead_rows(stand)
    return {
        "benchmark": NAME,
        "quick": quick,
        "rows": rows,
        "rows_per_transaction": PER_TRANSACTION,
        "poll_interval_ms": INTERVAL_MS,
        **_figures(free, rows),
        **_percentiles(delays),
        "rss_mb": memory,
        "old_snapshot": {
            **_figures(held, rows),
            **_percentiles(held_delays),
            "dead_rows": dead,
        },
        "latency_rows_per_s": RATE,
        **machine.description(),
    }


async def _rounds(
    stand: RelayStand, rows: int, rounds: int, told: str
) -> tuple[list[Removed], float]:
    """Backlogs one after the other, each by a new relay."""
    found: list[Removed] = []
    memory = 0.0
    for number in range(rounds):
        stand.write(rows, per_transaction=PER_TRANSACTION)
        before = await stand.ends(stand.relay)
        began = time.monotonic()
        with _relay(stand) as stage:
            pid = stage.process.pid
            caught_up = await stand.catch_up(stand.relay, rows, before=before, pid=pid)
            await _until_empty(stand)
            found.append(Removed(caught_up=caught_up, seconds=time.monotonic() - began))
            memory = max(memory, peak_mb(pid))
        print(
            f"{rows} rows{told}, round {number + 1}: {caught_up.rows_per_s:.0f} rows/s, "
            f"{caught_up.cpu_us_per_row:.1f} us of the relay a row, all removed after {found[-1].seconds:.1f} s",
            flush=True,
        )
    return found, memory


async def _until_empty(stand: RelayStand) -> None:
    deadline = time.monotonic() + CATCH_UP_S
    with psycopg.connect(stand.dsn, autocommit=True) as connection:
        # By the index: the rows that were removed are not looked at again.
        connection.execute("SET enable_seqscan = off")
        while connection.execute("SELECT FROM outbox_feed ORDER BY seq DESC LIMIT 1").fetchone():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the feed is not empty after {CATCH_UP_S:g} s")
            await asyncio.sleep(0.05)


async def _delays(stand: RelayStand, seconds: int) -> list[float]:
    with _relay(stand):
        return await stand.delays(stand.relay, per_second=RATE, seconds=seconds)


@contextmanager
def _relay(stand: RelayStand) -> Iterator[StageProcess]:
    environment = stand.environment() | {
        "MAILSTREAMS_RELAY_MODE": "poll",
        "MAILSTREAMS_RELAY_POLL_INTERVAL_MS": str(INTERVAL_MS),
    }
    port = stand.ports.claim(server="relay")
    with running_stage(
        "relay", environment=environment, health_port=port, directory=stand.directory
    ) as stage:
        yield stage


@contextmanager
def _old_snapshot(stand: RelayStand) -> Iterator[None]:
    """A report, say, that keeps every row that is removed meanwhile from being forgotten."""
    with psycopg.connect(stand.dsn) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")
        yield
        connection.rollback()


def _dead_rows(stand: RelayStand) -> int:
    with psycopg.connect(stand.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute(
            "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname LIKE 'outbox_feed_%'"
        ).fetchone()
    return int(row[0] or 0) if row else 0


def _figures(found: list[Removed], rows: int) -> dict[str, Any]:
    return {
        "rows_per_s": round(statistics.median(one.caught_up.rows_per_s for one in found)),
        "removed_rows_per_s": round(statistics.median(rows / one.seconds for one in found)),
        "cpu_us_per_row": round(
            statistics.median(one.caught_up.cpu_us_per_row for one in found), 2
        ),
        "rounds_rows_per_s": [round(one.caught_up.rows_per_s) for one in found],
    }


def _percentiles(delays: list[float]) -> dict[str, float]:
    return {
        f"latency_ms_p{percent}": round(
            delays[min(len(delays) - 1, len(delays) * percent // 100)], 2
        )
        for percent in (50, 99)
    }
