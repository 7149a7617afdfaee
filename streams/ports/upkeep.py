"""What the scheduler needs to remove what is old."""

from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from streams.domain.upkeep import Drop, PurgedContents, PurgedMessages, Upkeep


class OldRows(Protocol):
    """Removes what is old from PostgreSQL, each method one bounded transaction that waits for no row and is safe beside other replicas."""

    async def take_duty(self, name: str, every: timedelta) -> bool:
        """Whether this replica does it this time."""

    async def make_duty(self, name: str) -> None:
        """Must be called before purge_contents with this name."""

    async def mark_feed(self) -> None:
        """Notes what can be seen now, so that a confirmed position tells later which rows it has passed."""

    async def drop_feed_partition(self, older_than: timedelta) -> Drop:
        """Drops the oldest day that Kafka has; an insert waits 100 ms at most for it."""

    async def purge_feed_default(self, older_than: timedelta, *, limit: int) -> int:
        """Removes rows of the feed that lie in no day and that Kafka has; how many."""

    async def purge_contents(self, name: str, *, age: timedelta, limit: int) -> PurgedContents:
        """Empties messages of this age that have ended; each is looked at once under a name."""

    async def purge_messages(
        self, *, after: UUID, age: timedelta, quiet: timedelta, limit: int
    ) -> PurgedMessages:
        """Removes messages of this age that have ended, need nobody and had no event for so long."""

    async def purge_unmatched_events(
        self, *, after: datetime, older_than: timedelta, limit: int
    ) -> tuple[datetime | None, int]:
        """Removes events of no message of ours; the time up to which was looked at, None at the end, and how many."""

    async def forget_pauses(self, older_than: timedelta) -> int:
        """Removes pauses that ended long ago; how many."""

    async def upkeep(self, *, feed_kept: timedelta) -> Upkeep:
        """How old the oldest things are."""
