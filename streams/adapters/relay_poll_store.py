"""What a relay in polling mode reads and writes by SQL, each a statement or transaction of its own: nothing lasts in a session."""

import logging
import time
from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.adapters.relay_takeover import sent_by_wal
from streams.domain.acknowledgement import Lsn, Transaction
from streams.domain.errors import MailstreamsError, Misconfigured
from streams.domain.feed_rows import FeedRow, Refusal
from streams.domain.polling import LEASE_S, Acknowledged, Renewal, RowName
from streams.domain.slots import Cluster
from streams.ports.relay_polling import Page, Share

log = logging.getLogger(__name__)

# Whatever the planner believes of a feed that is empty in one moment and long in the next: by the index, row by row of what is asked.
PLANNER: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
}
# Pages, removal, leases, the look behind and announcements, none of which may wait for another.
CONNECTIONS: Final = 5
PAGE_ROWS: Final = 2000
PAGE_BYTES: Final = 4 * 1024 * 1024


class RelayPollStore:
    """Implements PollingStore for the relay with this id; the database belongs to it: start() and stop() are the pool's."""

    def __init__(self, database: Database, *, slot: str, relay_id: UUID) -> None:
        self._database = database
        self._slot = slot
        self._id = relay_id

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        await self._database.stop()

    async def check_setup(self) -> None:
        """Misconfigured, with one sentence, if the database is not as polling needs it, or a relay streams from the slot."""
        [row] = await self._database.rows("read_polling_setup", self._slot)
        if row["streaming"]:
            raise Misconfigured(
                f"a relay in wal mode streams from the slot {self._slot}, and two would write beside each other: stop it first, or set "
                "MAILSTREAMS_RELAY_MODE=wal here too"
            )
        if not row["index"]:
            raise Misconfigured(
                'polling needs an index of the feed: run "mailstreams migrate" with MAILSTREAMS_RELAY_MODE=poll first, which makes it'
            )
        if row["cached"] != 1:
            raise Misconfigured(
                f"the sequence outbox_feed_seq keeps {row['cached']} numbers a session, so that their order says nothing: "
                "ALTER SEQUENCE outbox_feed_seq CACHE 1"
            )

    async def prepare(self, shards: int) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(query("lock_relay_shards"))
            [found] = await connection.fetch(query("count_relay_shards"))
            if found["shards"] == shards:
                return
            if found["held"]:
                raise Misconfigured(
                    f"relays at work share the feed in {found['shards']} shards: set MAILSTREAMS_RELAY_SHARDS={found['shards']} here too, "
                    "or stop all of them before the number is changed"
                )
            await connection.execute(query("delete_relay_shards"))
            await connection.execute(query("insert_relay_shards"), shards)

    async def begin(self) -> Acknowledged | None:
        [row] = await self._database.rows("read_relay_cluster")
        cluster = Cluster(system_id=row["system_id"], timeline=row["timeline"])
        place = (cluster.system_id, cluster.timeline)
        sent = await sent_by_wal(self._database, self._slot, cluster)
        async with self._database.transaction() as connection:
            await connection.execute(query("lock_relay_shards"))
            for row in await connection.fetch(query("read_relay_checkpoint"), self._slot):
                if row["lsn"] and sent is not None:
                    await connection.execute(query("insert_relay_acknowledged"), sent, *place)
                elif row["lsn"]:
                    log.warning(
                        "polling follows a relay in wal mode, and what that had sent is not known: what is retained of the feed is sent "
                        "once more, consumers will see duplicates",
                        extra={"action": "relay.polling_begins"},
                    )
            await connection.execute(query("reset_relay_checkpoint"), self._slot, *place)
            left = await connection.fetch(query("read_relay_acknowledged"), *place)
        await self._drop_slot()
        for row in left:
            return Acknowledged(snapshot=row["snapshot"], timeline=row["timeline"])
        return None

    async def _drop_slot(self) -> None:
        try:
            if await self._database.rows("drop_relay_slot", self._slot):
                log.info(
                    "the slot of the relay in wal mode is dropped, it would keep WAL for nobody",
                    extra={"action": "relay.slot_dropped", "slot": self._slot},
                )
        except MailstreamsError as error:
            log.warning(
                "the slot of the relay in wal mode keeps WAL for nobody and could not be dropped: drop it with pg_drop_replication_slot",
                extra={"action": "relay.slot_kept", "slot": self._slot, "error": str(error)},
            )

    # Shards ---------------------------------------------------------------------------------------------------------

    async def renew(self, shards: int) -> Renewal | None:
        [row] = await self._database.rows("renew_relay_shards", self._id, LEASE_S, shards)
        if row["known"] != shards:
            return None
        return Renewal(held=row["held"], free=row["free"], pollers=row["pollers"])

    async def claim(self, shards: int, most: int) -> list[int]:
        rows = await self._database.rows("claim_relay_shards", self._id, LEASE_S, shards, most)
        return [row["shard"] for row in rows]

    async def release(self, held: Sequence[int]) -> None:
        await self._database.rows("release_relay_shards", self._id, list(held))

    async def leave(self) -> None:
        await self._database.rows("delete_relay_poller", self._id)

    # The feed -------------------------------------------------------------------------------------------------------

    async def end(self) -> int:
        return int(await self._database.value("read_feed_end"))

    async def writers(self) -> Collection[str]:
        return {row["name"] for row in await self._database.rows("list_feed_writers")}

    async def page(self, share: Share, *, ordinal: int, after: int, end: int) -> Page:
        rows = await self._database.rows(
            "read_feed_page",
            *(after, end, PAGE_ROWS, PAGE_BYTES, share.shards, list(share.held)),
            *_snapshot(share),
        )
        written = rows[0]["written"] if rows else time.time()
        transaction = Transaction(ordinal, written or 1.0, Lsn(ordinal))
        found = [_feed_row(transaction, row) for row in rows]
        size = sum(len(row[5] or b"") + len(row[6] or b"") for row in found)
        return Page(
            transaction=transaction,
            rows=found,
            names=[(int(row["seq"]), row["id"], row["ts"]) for row in rows],
            complete=len(rows) < PAGE_ROWS and size < PAGE_BYTES,
        )

    async def behind(self, share: Share, *, after: int, end: int, most: int) -> list[RowName]:
        rows = await self._database.rows(
            "list_feed_behind",
            *(after, end, most, share.shards, list(share.held)),
            *_snapshot(share),
        )
        return [(row["seq"], row["id"], row["ts"]) for row in rows]

    async def acknowledged(
        self, done: Acknowledged, *, after: int, end: int, most: int
    ) -> list[RowName]:
        rows = await self._database.rows(
            "list_feed_acknowledged", after, end, most, done.snapshot, done.timeline
        )
        return [(row["seq"], row["id"], row["ts"]) for row in rows]

    async def delete(self, names: Sequence[RowName]) -> None:
        numbers, ids, times = ([name[part] for name in names] for part in range(3))
        await self._database.rows("delete_feed_rows", numbers, ids, times)

    async def forget_acknowledged(self) -> None:
        await self._database.rows("delete_relay_acknowledged")

    async def set_aside(self, row: FeedRow, reason: Refusal, detail: str | None) -> None:
        _, row_id, aggregate, key, kind, payload, trace, seq = map(_text, row)
        await self._database.rows(
            "insert_relay_refused",
            *(row_id, seq, aggregate, key, kind, payload, trace, reason.value, detail),
        )

    async def announce(self, keys: Sequence[str]) -> None:
        await self._database.rows("announce_suppressions", list(keys), 0)


def _snapshot(share: Share) -> tuple[str | None, int]:
    done = share.acknowledged
    return (None, 0) if done is None else (done.snapshot, done.timeline)


def _feed_row(transaction: Transaction, row: Any) -> FeedRow:
    row_id, aggregate, key, kind, payload, trace, seq = map(_bytes, tuple(row)[:7])
    return (transaction, row_id, aggregate, key, kind, payload, trace, seq)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None
