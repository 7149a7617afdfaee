"""Where the relay is measured: one feed, a slot and a topic for each reader of it, and the time at which Kafka appended each record."""

import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import asyncpg
import psycopg
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import devservers
from benchmarks import machine
from demo.system import SALT, stage_environment
from devservers.ports import Ports
from streams.adapters.migrations import migrate
from streams.adapters.postgres import Database

AGGREGATE: Final = "outbox.bulk"
PARTITIONS: Final = 12
KEYS: Final = 50_000
CATCH_UP_S: Final = 600.0
WRITERS: Final = 8
_TICKS: Final = os.sysconf("SC_CLK_TCK")
# About 210 bytes of text a payload.
_ROWS: Final = (
    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "  # noqa: S608 names and numbers of our own
    f"SELECT '{AGGREGATE}', md5((n % {KEYS})::text), 'pointer', jsonb_build_object('n', n, 'filling', repeat(md5(n::text), 6)) "
    "FROM generate_series({first}, {last}) AS n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """One backlog: rows a second between Kafka's first and last append, the reader's processor time a row."""

    rows_per_s: float
    cpu_us_per_row: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One that reads the feed: its slot, its topic."""

    slot: str
    prefix: str

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(f"{self.prefix}{AGGREGATE}", n) for n in range(PARTITIONS)]


class RelayStand:
    """An async context: everything runs inside of it."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._written = 0

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        enter = self._stack.enter_context
        self.directory = Path(enter(tempfile.TemporaryDirectory(prefix="mailstreams-bench-")))
        self.servers = enter(devservers.running())
        self.bootstrap_servers = self.servers.kafka.bootstrap_servers
        name = f"bench_{time.time_ns()}"
        self.dsn = self.servers.postgres.create_database(name)
        self._stack.callback(self.servers.postgres.drop_database, name)
        self.ports = Ports(self.directory / "ports")
        self._stack.callback(self.ports.release)
        async with Database(self.dsn, pool_size=1, timeout_s=300, name="benchmark") as database:
            await migrate(database, salt=SALT.encode(), slot=None)
        self.relay = await self._reader(f"{name}_relay")
        self.debezium = await self._reader(f"{name}_debezium")
        self._consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap_servers)
        await self._consumer.start()
        self._stack.push_async_callback(self._consumer.stop)

    async def _reader(self, name: str) -> Reader:
        made = Reader(slot=name, prefix=f"{name}.")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        self._stack.callback(self._drop_slot, name)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await admin.start()
        try:
            appended = {"message.timestamp.type": "LogAppendTime"}
            topic = NewTopic(made.partitions[0].topic, PARTITIONS, 1, topic_configs=appended)
            await admin.create_topics([topic])
        finally:
            await admin.close()
        return made

    def _drop_slot(self, slot: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            # A relay in polling mode has dropped its own.
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                [slot],
            )

    def environment(self) -> dict[str, str]:
        """For `mailstreams relay`."""
        return {
            **machine.environment(),
            **self.servers.environment(),
            **stage_environment(),
            "MAILSTREAMS_POSTGRES_DSN": self.dsn,
            "MAILSTREAMS_TOPIC_PREFIX": self.relay.prefix,
            "MAILSTREAMS_RELAY_SLOT": self.relay.slot,
        }

    def write(self, rows: int, *, per_transaction: int) -> None:
        """More rows, so many in each transaction."""
        first, self._written = self._written, self._written + rows
        row = _ROWS.format(first="i", last=f"least(i + {per_transaction}, {self._written}) - 1")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute(
                f"DO $$ BEGIN FOR i IN {first}..{self._written - 1} BY {per_transaction} LOOP {row}; COMMIT; END LOOP; END $$"
            )
            connection.execute("SET synchronous_commit = on")
            connection.execute("SELECT txid_current()")  # what was written before is on the disk

    async def ends(self, reader: Reader) -> dict[TopicPartition, int]:
        found = await self._consumer.end_offsets(reader.partitions)
        return {place: found[place] for place in reader.partitions}

    async def catch_up(
        self,
        reader: Reader,
        rows: int,
        *,
        before: dict[TopicPartition, int],
        pid: int,
    ) -> CatchUp:
        """Waits until a reader that has just been started has written so many records more than `before`."""
        deadline = time.monotonic() + CATCH_UP_S
        start, begun = sum(before.values()), None
        while True:
            count = sum((await self.ends(reader)).values()) - start
            if begun is None and count:
                begun = (count, cpu_s(pid))
            if begun is not None and count >= rows:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count} of {rows} rows came within {CATCH_UP_S:g} s")
            await asyncio.sleep(0.02)
        used = cpu_s(pid) - begun[1]
        seconds = await self._append_seconds(before, await self.ends(reader))
        return CatchUp(
            rows_per_s=count / seconds, cpu_us_per_row=used * 1e6 / max(1, count - begun[0])
        )

    async def _append_seconds(
        self, before: dict[TopicPartition, int], after: dict[TopicPartition, int]
    ) -> float:
        """From Kafka's first append to its last."""
        filled = [place for place in after if after[place] > before[place]]
        firsts = [await self._timestamp(place, before[place]) for place in filled]
        lasts = [await self._timestamp(place, after[place] - 1) for place in filled]
        return max(1, max(lasts) - min(firsts)) / 1000

    async def _timestamp(self, place: TopicPartition, offset: int) -> int:
        self._consumer.assign([place])
        self._consumer.seek(place, offset)
        return int((await self._consumer.getone()).timestamp)

    async def delays(self, reader: Reader, *, per_second: int, seconds: float) -> list[float]:
        """Milliseconds from a COMMIT that returned to a consumer that has the record, single-row transactions."""
        first = self._written
        self._written += int(per_second * seconds)
        committed: dict[int, float] = {}
        received: dict[int, float] = {}
        self._consumer.assign(reader.partitions)
        await self._consumer.seek_to_end(*reader.partitions)

        async def consume() -> None:
            while len(received) < self._written - first:
                found = await self._consumer.getmany(timeout_ms=200)
                now = time.perf_counter()
                for batch in found.values():
                    for record in batch:
                        if (number := _number(record.value)) >= first:
                            received.setdefault(number, now)

        async def produce(writer: int) -> None:
            connection = await asyncpg.connect(self.dsn)
            try:
                statement = await connection.prepare(_ROWS.format(first="$1::int", last="$1::int"))
                for n in range(first + writer, self._written, WRITERS):
                    await asyncio.sleep(start + (n - first) / per_second - time.perf_counter())
                    await statement.fetch(n)
                    committed[n] = time.perf_counter()
            finally:
                await connection.close()

        start = time.perf_counter() + 0.5
        async with asyncio.timeout(CATCH_UP_S):
            await asyncio.gather(consume(), *(produce(writer) for writer in range(WRITERS)))
        return sorted(max(0.0, received[n] - committed[n]) * 1000 for n in committed)


def _number(value: Any) -> int:
    return int(value[6 : value.index(b",")])  # {"n": 17, "filling": ...


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mb(pid: int) -> float:
    """The largest resident set of a process so far, in 10^6 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return round(int(kilobytes) * 1024 / 1e6, 1)
