"""What the relay reads and writes by SQL: its set-up, slot, checkpoint, the feed as a whole, and refused rows."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.acknowledgement import Lsn, Transaction
from streams.domain.errors import Misconfigured
from streams.domain.feed_rows import FeedRow, Refusal
from streams.domain.slots import PUBLICATION, Checkpoint, Cluster, Slot

_PAGE: Final = 1000
# The first page of a large feed comes after it is sorted.
_SORT_TIMEOUT_S: Final = 3600.0


class RelayStore:
    """Implements the relay's port of the same name; the database belongs to it: start() and stop() are the pool's."""

    def __init__(self, database: Database, *, slot: str) -> None:
        self._database = database
        self._slot = slot

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        await self._database.stop()

    async def check_setup(self) -> None:
        """Misconfigured, with one sentence, if the server or the database is not as the relay needs it."""
        [row] = await self._database.rows("read_relay_setup", PUBLICATION)
        if row["wal_level"] != "logical":
            raise Misconfigured(
                f"wal_level is {row['wal_level']} and has to be logical: "
                "ALTER SYSTEM SET wal_level = 'logical', then restart PostgreSQL; where that may not be, set MAILSTREAMS_RELAY_MODE=poll"
            )
        if not row["migrated"]:
            raise Misconfigured(
                'the database lacks the relay\'s tables: run "mailstreams migrate" on it first'
            )
        if await self._database.value("find_polling_relay"):
            raise Misconfigured(
                "a relay in polling mode is at work on this database, and two would write beside each other: stop it first, or set "
                "MAILSTREAMS_RELAY_MODE=poll here too"
            )
        if not row["publication"]:
            raise Misconfigured(
                f"the publication {PUBLICATION} is missing, without it nothing is streamed: CREATE PUBLICATION {PUBLICATION} "
                "FOR TABLE outbox_feed WITH (publish = 'insert', publish_via_partition_root = true), and drop the relay's "
                "replication slot, so that rows inserted meanwhile are sent again"
            )
        if not row["publishes_feed"]:
            raise Misconfigured(
                f"the publication {PUBLICATION} does not publish every insert into outbox_feed under its own name: give it the "
                "table without a row filter, publish = 'insert' and publish_via_partition_root = true"
            )

    async def slot(self) -> Slot | None:
        for row in await self._database.rows("read_relay_slot", self._slot):
            return Slot(
                plugin=row["plugin"],
                here=bool(row["here"]),
                active_pid=row["active_pid"],
                wal_status=row["wal_status"],
                confirmed=None if row["confirmed"] is None else Lsn(row["confirmed"]),
                lag_bytes=row["lag_bytes"],
                safe_wal_size=row["safe_wal_size"],
                retained_bytes=row["retained_bytes"],
                keep_bytes=row["keep_bytes"],
            )
        return None

    async def checkpoint(self) -> Checkpoint | None:
        for row in await self._database.rows("read_relay_checkpoint", self._slot):
            cluster = Cluster(system_id=row["system_id"], timeline=row["timeline"])
            return Checkpoint(lsn=Lsn(row["lsn"]), cluster=cluster)
        return None

    async def store_checkpoint(self, checkpoint: Checkpoint) -> None:
        cluster = checkpoint.cluster
        await self._database.rows(
            "store_relay_checkpoint",
            self._slot,
            checkpoint.lsn,
            cluster.system_id,
            cluster.timeline,
        )

    @asynccontextmanager
    async def snapshot(
        self, snapshot: str, transaction: Transaction
    ) -> AsyncIterator[AsyncIterator[list[FeedRow]]]:
        """Pages of every row of the feed that the exported snapshot sees, as rows of the given transaction."""
        async with (
            self._database.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.execute(f"SET TRANSACTION SNAPSHOT '{_checked(snapshot)}'")
            cursor = await connection.cursor(query("read_feed_in_order"), timeout=_SORT_TIMEOUT_S)

            async def pages() -> AsyncIterator[list[FeedRow]]:
                while page := await cursor.fetch(_PAGE, timeout=_SORT_TIMEOUT_S):
                    yield [_feed_row(transaction, row) for row in page]

            yield pages()

    async def set_aside(self, row: FeedRow, reason: Refusal, detail: str | None) -> None:
        """Returns when the row stands in relay_refused."""
        _, row_id, aggregate, key, kind, payload, trace, seq = map(_text, row)
        await self._database.rows(
            "insert_relay_refused",
            *(row_id, seq, aggregate, key, kind, payload, trace, reason.value, detail),
        )

    async def announce(self, keys: Sequence[str]) -> None:
        await self._database.rows("announce_suppressions", list(keys), 0)

    async def writing_transactions(self) -> list[str]:
        """What a new slot waits for, one short text each."""
        return [
            f"pid {row['pid']} ({row['application_name'] or 'no name'}, {row['state']}, {row['age_s']:.0f} s)"
            for row in await self._database.rows("list_writing_transactions")
        ]


def _checked(snapshot: str) -> str:
    # The name comes from the server; it cannot be a bound parameter.
    if not snapshot.replace("-", "").isalnum():
        raise ValueError(f"not the name of a snapshot: {snapshot!r}")
    return snapshot


def _feed_row(transaction: Transaction, row: Any) -> FeedRow:
    row_id, aggregate, key, kind, payload, trace, seq = map(_bytes, row)
    return (transaction, row_id, aggregate, key, kind, payload, trace, seq)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None
