"""The suppressions of recipients into the feed again, out of PostgreSQL, which alone knows them."""

from collections.abc import Sequence

from streams.adapters.postgres import Database
from streams.domain.addresses import RecipientKey


class SuppressionAnnouncer:
    """Uses a pool that somebody else starts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def announce(self, keys: Sequence[RecipientKey], *, behind: int) -> None:
        await self._database.rows("announce_suppressions", list(keys), behind)
