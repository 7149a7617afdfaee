"""The provider's suppression list in PostgreSQL: the pace of calls, the import, and the addresses to delete from it."""

from datetime import timedelta
from typing import Final

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.bounce_rules import RULES
from streams.domain.provider_list import (
    LONGEST_PAUSE,
    ImportProgress,
    PageTaken,
    Recipients,
    Turn,
    Unlisting,
    UnlistingBacklog,
)

_NOTHING: Final = {"suppressed": 0, "lifted": 0}


class ProviderListStore:
    """Owns its pool: start() connects, stop() closes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self) -> None:
        await self._database.start()

    async def stop(self) -> None:
        await self._database.stop()

    async def prepare(self, scope: str) -> None:
        """Must be called before the others."""
        await self._database.rows("insert_provider_list", scope)

    async def take_turn(self, scope: str, *, lasting: timedelta) -> Turn | None:
        """Leave for one call, if there is anything to do and no other replica has a turn or a pause; ours until it ends, or for so long."""
        rows = await self._database.rows("take_provider_turn", scope, lasting, LONGEST_PAUSE)
        return Turn(**rows[0]) if rows else None

    async def end_turn(self, scope: str, pause: timedelta) -> None:
        """The call is over; nobody makes another for so long."""
        await self._database.rows("end_provider_turn", scope, pause)

    async def take_page(
        self, scope: str, turn: Turn, found: Recipients, next_token: str | None
    ) -> PageTaken | None:
        """Suppresses the recipients, but for those lifted since, and moves the import on; None if it has moved on meanwhile."""
        keys = [one.recipient_key for one in found.listed]
        async with self._database.transaction() as connection:
            position = turn.importing, turn.next_token, next_token, found.entries, found.unusable
            if not await connection.fetchval(query("advance_provider_import"), scope, *position):
                return None
            done = _NOTHING
            if keys:
                # The lifts are read by a statement of its own, which sees what committed before the locks were given.
                await connection.fetch(query("lock_suppressions"), keys)
                row = await connection.fetchrow(
                    query("import_provider_suppressions"),
                    keys,
                    [one.evidence_id for one in found.listed],
                    [one.listed_at for one in found.listed],
                    RULES.version,
                )
                done = dict(row) if row is not None else _NOTHING
            await connection.execute(
                query("count_provider_import"), scope, done["suppressed"], done["lifted"]
            )
        return PageTaken(**done)

    async def begin_anew(self, scope: str, turn: Turn) -> None:
        """The import begins with the first page again."""
        await self._database.rows("restart_provider_import", scope, turn.next_token)

    async def progress(self, scope: str) -> ImportProgress:
        (row,) = await self._database.rows("read_provider_imports", scope)
        return ImportProgress(**{name: row[name] for name in ImportProgress.__slots__})

    async def claim_unlisting(self) -> Unlisting | None:
        """The next address to delete; it is not given out again for a minute, longer after each try."""
        rows = await self._database.rows("claim_unlisting")
        return Unlisting(**rows[0]) if rows else None

    async def unlisted(self, unlisting: Unlisting) -> None:
        """Done: forgets the address, unless it was asked for again meanwhile."""
        await self._database.rows("delete_unlisting", unlisting.recipient_key, unlisting.requested)

    async def forget_address(self, unlisting: Unlisting) -> None:
        """The provider never takes this address: a person has to look."""
        await self._database.rows(
            "forget_unlisting_address", unlisting.recipient_key, unlisting.requested
        )

    async def backlog(self) -> UnlistingBacklog:
        (row,) = await self._database.rows("count_unlistings")
        return UnlistingBacklog(**row)
