"""Writers of numbered rows, each under a key of its own, and what a consumer that drops repeats has seen of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

Records = list[Any]


class NumberedWriters:
    """Write 1, 2, 3, ... until they are stopped, a few in each transaction."""

    def __init__(self, dsn: str, count: int) -> None:
        self._dsn = dsn
        self._written = [0] * count
        self._done = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._write(writer)) for writer in range(len(self._written))
        ]

    async def stop(self) -> None:
        """Raises what a writer failed with. Nothing happens the second time."""
        self._done.set()
        await asyncio.gather(*self._tasks)

    async def have_begun(self) -> bool:
        return min(self._written) >= 20

    def newer_rows_have_come(self) -> Callable[[Records], bool]:
        """Whether rows of every writer have come that are written after this call."""
        marks = [written + 20 for written in self._written]
        return lambda records: all(
            last >= mark for last, mark in zip(self._last(records), marks, strict=True)
        )

    def all_have_come(self, records: Records) -> bool:
        return self._last(records) == self._written

    def all_numbers(self) -> dict[bytes, list[int]]:
        """What was written, by key and in order."""
        return {_key(writer): list(range(1, last + 1)) for writer, last in enumerate(self._written)}

    def _last(self, records: Records) -> list[int]:
        found = without_repeats(records)
        return [max(found.get(_key(writer), [0])) for writer in range(len(self._written))]

    async def _write(self, writer: int) -> None:
        connection = await asyncpg.connect(self._dsn, timeout=60)
        try:
            while not self._done.is_set():
                first = self._written[writer] + 1
                last = first + first % 4
                await connection.execute(
                    "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
                    "SELECT 'suppressions', $1, 't', jsonb_build_object('n', n) FROM generate_series($2::int, $3::int) AS n",
                    _key(writer).decode(),
                    first,
                    last,
                )
                self._written[writer] = last
                await asyncio.sleep(0.02)
        finally:
            await connection.close()


@asynccontextmanager
async def numbered_writers(dsn: str, count: int) -> AsyncIterator[NumberedWriters]:
    """Writers at work; stopped at the end at the latest."""
    writers = NumberedWriters(dsn, count)
    writers.start()
    try:
        yield writers
    finally:
        await writers.stop()


def without_repeats(records: Records) -> dict[bytes, list[int]]:
    """The numbers by key in the order in which each came first."""
    found: dict[bytes, dict[int, None]] = {}
    for record in records:
        found.setdefault(record.key, {}).setdefault(json.loads(record.value)["n"])
    return {key: list(numbers) for key, numbers in found.items()}


def _key(writer: int) -> bytes:
    return b"w%d" % writer
