"""What the scheduler removes from PostgreSQL: each method one statement, safe beside other replicas."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from streams.adapters.postgres import Database
from streams.domain.upkeep import Drop, PurgedContents, PurgedMessages, Upkeep

# A partition is read once before it goes; a duty that takes longer would look stuck.
READ_PARTITION_S: Final = 50.0


class UpkeepStore:
    """Uses the pool of its stage."""

    def __init__(self, database: Database, *, slot: str) -> None:
        self._database = database
        self._slot = slot

    async def take_duty(self, name: str, every: timedelta) -> bool:
        """Whether this replica does it this time."""
        return await self._database.value("take_duty", name, every) is True

    async def make_duty(self, name: str) -> None:
        await self._database.rows("insert_duty", name)

    async def mark_feed(self) -> None:
        """Notes what can be seen now, so that a confirmed position tells later which rows it has passed."""
        await self._database.rows("mark_feed", self._slot)

    async def drop_feed_partition(self, older_than: timedelta) -> Drop:
        """Drops the oldest day that Kafka has; an insert waits 100 ms at most for it."""
        return Drop(
            await self._database.value(
                "drop_feed_partition", self._slot, older_than, timeout_s=READ_PARTITION_S
            )
        )

    async def purge_feed_default(self, older_than: timedelta, *, limit: int) -> int:
        """Removes rows of the feed that lie in no day and that Kafka has; how many."""
        return int(await self._database.value("purge_feed_default", self._slot, older_than, limit))

    async def purge_contents(self, name: str, *, age: timedelta, limit: int) -> PurgedContents:
        """Empties messages of this age that have ended; each is looked at once under a name."""
        (row,) = await self._database.rows("purge_contents", name, age, limit)
        return PurgedContents(**row)

    async def purge_messages(
        self, *, after: UUID, age: timedelta, quiet: timedelta, limit: int
    ) -> PurgedMessages:
        """Removes messages of this age that have ended, need nobody and had no event for so long."""
        (row,) = await self._database.rows("purge_messages", after, age, quiet, limit)
        found = dict(row)
        return PurgedMessages(seen=found.pop("seen"), last=found.pop("last"), removed=found)

    async def purge_unmatched_events(
        self, *, after: datetime, older_than: timedelta, limit: int
    ) -> tuple[datetime | None, int]:
        """Removes events of no message of ours; the time up to which was looked at, None at the end, and how many."""
        (row,) = await self._database.rows("purge_unmatched_events", after, older_than, limit)
        return (row["last"] if row["seen"] == limit else None), row["removed"]

    async def forget_pauses(self, older_than: timedelta) -> int:
        """Removes pauses that ended long ago; how many."""
        return int(await self._database.value("forget_pauses", older_than))

    async def upkeep(self, *, feed_kept: timedelta) -> Upkeep:
        """How old the oldest things are."""
        (row,) = await self._database.rows("measure_upkeep", feed_kept)
        return Upkeep(**row)
