"""A relay on a database and topics of its own, rows for it, and what arrives in Kafka."""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer

from streams.adapters.kafka_batches import KafkaBatches
from streams.adapters.postgres import Database
from streams.adapters.relay_store import RelayStore
from streams.adapters.replication import ReplicationConnection
from streams.domain.delivery_events import CONTENT_TYPE
from streams.domain.slots import PUBLICATION
from streams.domain.topics import Topics
from streams.relay import Relay
from streams.runtime.lifecycle import Stage

_numbers = itertools.count()


async def eventually(
    condition: Callable[[], Awaitable[Any]], *, within_s: float = 60.0, every_s: float = 0.05
) -> Any:
    """What condition gives as soon as it is true; fails the test after the deadline."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not (found := await condition()):
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"not true within {within_s:g} s: {condition.__qualname__}")
        await asyncio.sleep(every_s)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The addresses of one test's relay."""

    dsn: str
    bootstrap_servers: str
    topics: Topics
    slot: str = field(default_factory=lambda: f"relay_{os.getpid()}_{next(_numbers)}")

    def relay(
        self, *, max_rows: int = 20_000, max_bytes: int = 32 * 1024 * 1024, drain_s: float = 10.0
    ) -> Relay:
        """A relay as the command wires it."""
        return Relay(
            source=ReplicationConnection(self.dsn, slot=self.slot, publication=PUBLICATION),
            sink=KafkaBatches(
                self.bootstrap_servers,
                topic_prefix=self.topics.prefix,
                kinds={},
                content_types={self.topics.delivery_events: CONTENT_TYPE},
                linger_s=0.002,
                max_rows=max_rows,
                max_bytes=max_bytes,
            ),
            store=RelayStore(
                Database(self.dsn, pool_size=4, timeout_s=15, name="relay"), slot=self.slot
            ),
            drain_s=drain_s,
        )

    async def execute(self, statement: str, *values: Any) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(statement, *values)
        finally:
            await connection.close()

    async def value(self, statement: str, *values: Any) -> Any:
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetchval(statement, *values)
        finally:
            await connection.close()

    async def make_slot(self) -> None:
        await self.execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", self.slot)

    async def confirmed(self) -> int:
        """The slot's confirmed position."""
        found = await self.value(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1",
            self.slot,
        )
        return int(found or 0)

    async def slot_pid(self) -> int | None:
        """The server process that streams from the slot."""
        found = await self.value(
            "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1", self.slot
        )
        return None if found is None else int(found)

    async def wal_position(self) -> int:
        return int(await self.value("SELECT (pg_current_wal_lsn() - '0/0')::bigint"))

    async def insert(self, first: int, last: int, *, keys: int = 20, per_commit: int = 50) -> None:
        """Rows number first to last (exclusive) of suppressions; key and payload tell the number."""
        connection = await asyncpg.connect(self.dsn)
        try:
            for start in range(first, last, per_commit):
                await connection.execute(
                    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
                    "SELECT 'suppressions', md5((n % $3)::text), 'suppressions', jsonb_build_object('n', n) "
                    "FROM generate_series($1::int, $2::int - 1) AS n",
                    start,
                    min(start + per_commit, last),
                    keys,
                )
        finally:
            await connection.close()

    def command(self) -> Sequence[str]:
        """The command line of this relay as a process of its own."""
        return [
            *(sys.executable, "-m", "tests.integration.relay_process"),
            *(self.dsn, self.bootstrap_servers, self.topics.prefix, self.slot),
        ]


@asynccontextmanager
async def streaming(relay: Stage) -> AsyncIterator["asyncio.Task[None]"]:
    """Runs the relay; it streams when the body begins, and is stopped after it."""
    await relay.start()
    async with running(relay) as run:

        async def ready() -> bool:
            if run.done():
                run.result()
            return not relay.health.missing()

        await eventually(ready)
        yield run


@asynccontextmanager
async def running(relay: Stage) -> AsyncIterator["asyncio.Task[None]"]:
    """Runs the started relay and stops it after the body; it must then end in good order."""
    run = asyncio.create_task(relay.run())
    try:
        # run() says that it is under way before its first wait.
        await asyncio.sleep(0)
        yield run
    finally:
        await relay.stop()
        if not run.done():
            await run


class Reader:
    """A plain consumer of whole topics, from their beginning."""

    def __init__(self, bootstrap_servers: str, *topics: str) -> None:
        self._options = (bootstrap_servers, topics)
        self.records: list[Any] = []

    async def __aenter__(self) -> "Reader":
        bootstrap_servers, topics = self._options
        self._consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
        )
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def read(
        self, enough: Callable[[list[Any]], bool], *, within_s: float = 60.0
    ) -> list[Any]:
        """Reads on until enough says so of all records so far."""
        deadline = asyncio.get_running_loop().time() + within_s
        while not enough(self.records):
            if asyncio.get_running_loop().time() > deadline:
                pytest.fail(f"{len(self.records)} records after {within_s:g} s are not enough")
            found = await self._consumer.getmany(timeout_ms=200)
            self.records += [record for batch in found.values() for record in batch]
        return self.records

    async def rest(self) -> list[Any]:
        """Reads on to the end as it is now."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        for partition, end in ends.items():
            while await self._consumer.position(partition) < end:
                found = await self._consumer.getmany(timeout_ms=200)
                self.records += [record for batch in found.values() for record in batch]
        return self.records
