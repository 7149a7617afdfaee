"""Looks messages up in PostgreSQL by whatever somebody has of them, and tells their stories."""

from typing import Any
from uuid import UUID

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.addresses import RecipientKey
from streams.domain.asking import Asked
from streams.domain.by_hand import Decision

Row = dict[str, Any]


class MessageStories:
    """Uses a pool that is started. Every look-up goes by an index, however large the tables are."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(
        self, what: Asked, key: RecipientKey | None, *, tenant: str | None, limit: int
    ) -> list[Row]:
        """The messages that are meant, newest first."""
        rows = await self._database.rows("find_messages", what.id, what.text, key, tenant, limit)
        return [dict(row) | {"id": str(row["id"])} for row in rows]

    async def story(self, outbox_id: UUID, shown_to: Decision | None) -> list[Row]:
        """Oldest first, without addresses; with them, and an entry in the audit log, where it is said to whom."""
        if shown_to is None:
            return [dict(row) for row in await self._database.rows("trace_email", outbox_id, False)]
        async with self._database.transaction() as connection:
            await connection.execute(query("note_look"), shown_to.by_whom, shown_to.why, outbox_id)
            return [
                dict(row) for row in await connection.fetch(query("trace_email"), outbox_id, True)
            ]
