"""The index of the feed that polling reads by, and that nothing else needs: made and dropped while others insert."""

import asyncio
import logging
from typing import Final

import asyncpg

from streams.adapters.postgres import Database
from streams.domain.errors import Misconfigured, Unavailable

log = logging.getLogger(__name__)

# Of one partition, while a long transaction is waited for.
_BUILD_TIMEOUT_S: Final = 3600.0
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '300ms'"
_TRIES: Final = 100
_PAUSE_S: Final = 0.3


async def make_feed_index(database: Database) -> bool:
    """Makes what of it is missing, partition by partition; whether anything was. Partitions made later get it by themselves."""
    made = await _build(database)
    if not await database.value("find_valid_feed_index"):
        # Two migrations at once can leave a part that is attached before it is built, which cannot be mended alone.
        await _at_a_quiet_moment(database, "DROP INDEX IF EXISTS outbox_feed_seq_idx")
        made = await _build(database)
    return made


async def _build(database: Database) -> bool:
    made = False
    if not await database.value("find_feed_index"):
        # Of the parent alone: nothing is read, and new partitions have it from now on.
        await _at_a_quiet_moment(
            database, "CREATE INDEX IF NOT EXISTS outbox_feed_seq_idx ON ONLY outbox_feed (seq)"
        )
        made = True
    for row in await database.rows("list_unindexed_partitions"):
        partition, index, qualified = row["partition"], row["index"], row["qualified"]
        async with database.connection() as connection:
            if row["broken"]:
                await connection.execute(
                    f"DROP INDEX CONCURRENTLY {qualified}", timeout=_BUILD_TIMEOUT_S
                )
            await connection.execute(
                f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {index} ON {partition} (seq)",
                timeout=_BUILD_TIMEOUT_S,
            )
        await _at_a_quiet_moment(
            database, f"ALTER INDEX outbox_feed_seq_idx ATTACH PARTITION {qualified}"
        )
        made = True
    return made


async def drop_feed_index(database: Database) -> bool:
    """Whether there was one. Misconfigured while relays in polling mode are at work."""
    if not await database.value("find_feed_index"):
        return False
    [row] = await database.rows("count_relay_shards")
    if row["held"]:
        raise Misconfigured(
            "relays in polling mode are at work and need their index of the feed: stop them, or set MAILSTREAMS_RELAY_MODE=poll for migrate too"
        )
    await _at_a_quiet_moment(database, "DROP INDEX IF EXISTS outbox_feed_seq_idx")
    return True


async def _at_a_quiet_moment(database: Database, statement: str) -> None:
    """Waits for the lock a moment only, again and again: whoever inserts would wait behind us."""
    for _ in range(_TRIES):
        try:
            async with database.transaction() as connection:
                await connection.execute(_LOCK_TIMEOUT)
                await connection.execute(statement)
        except Unavailable as error:
            if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise
            log.warning(
                "the feed is written to by a long transaction, its index has to wait",
                extra={"action": "migrate.index_waits"},
            )
            await asyncio.sleep(_PAUSE_S)
        else:
            return
    raise Unavailable(
        "the feed is written to by a transaction that does not end: end it, then run migrate again"
    )
