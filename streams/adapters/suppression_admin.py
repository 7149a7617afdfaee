"""What an operator does with suppressions in PostgreSQL: each method one transaction."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.address_lists import Recipient
from streams.domain.addresses import RecipientKey

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class By:
    """Who does it, and why."""

    whom: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """For which tenant and lane; "*" for all."""

    tenant: str = "*"
    lane: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which suppressions are listed, in the order of their recipients."""

    key: RecipientKey | None = None
    after: str = ""
    reason: str | None = None
    tenant: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a file came to: recipients, of whom some are new, some suppressed longer now."""

    recipients: int
    added: int
    extended: int
    left_out: int


class SuppressionAdmin:
    """Uses a pool that is started."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, search: Search) -> list[Row]:
        """Suppressions with their evidence."""
        return _plain(
            await self._database.rows(
                "list_suppressions",
                search.key,
                search.after,
                search.reason,
                search.tenant,
                search.limit,
            )
        )

    async def lifts(self, key: RecipientKey) -> list[Row]:
        """What was lifted of this recipient, newest first."""
        return _plain(await self._database.rows("list_lifts", key))

    async def unlistings(self, key: RecipientKey | None = None) -> list[Row]:
        """What is to be deleted from the provider's list: of one recipient, or all without a known address."""
        return _plain(await self._database.rows("list_unlistings", key))

    async def add(self, key: RecipientKey, where: Where, by: By, lasting: timedelta | None) -> str:
        """added, extended, or was there."""
        async with self._database.transaction() as connection:
            # Before any row, as a lift does: in the other order each could wait for the other.
            await connection.fetch(query("lock_suppressions"), [key])
            outcome = await connection.fetchval(
                query("add_suppression"),
                *(key, where.tenant, where.lane, by.whom, by.why, lasting),
            )
        return str(outcome)

    async def lift(self, who: Recipient, where: Where, by: By, *, reason: str = "*") -> list[Row]:
        """The suppressions that are gone. The lift is a fact: no evidence of before suppresses again."""
        async with self._database.transaction() as connection:
            rows = await connection.fetch(
                query("lift_recipient"),
                *(who.key, where.tenant, where.lane, reason, by.whom, by.why, who.address),
            )
        return _plain(rows)

    async def import_keys(
        self,
        keys: Iterable[RecipientKey],
        where: Where,
        by: By,
        *,
        lasting: timedelta | None,
        left_out: Callable[[], int],
    ) -> Imported:
        """All of them in one statement, or nothing. left_out is asked when the keys are at their end."""
        async with self._database.transaction() as connection:
            await connection.execute(query("make_import"))
            await connection.copy_records_to_table(
                "imported_recipient", records=((key,) for key in keys), columns=["recipient_key"]
            )
            await connection.execute(query("lock_imported"))
            row = await connection.fetchrow(
                query("import_suppressions"),
                *(where.tenant, where.lane, by.whom, by.why, lasting, left_out()),
            )
        counts = {} if row is None else dict(row)
        return Imported(**counts, left_out=left_out())

    async def announced(self, *, after: str, limit: int) -> list[RecipientKey]:
        """Recipients of whom the feed has ever told something, in the order of their keys."""
        rows = await self._database.rows("read_announced", after, limit)
        return [RecipientKey(row["recipient_key"]) for row in rows]

    async def announce_again(self, keys: Sequence[RecipientKey]) -> None:
        """What is in force of each into the feed, a tombstone where nothing is."""
        await self._database.rows("announce_suppressions", list(keys), 0)

    async def told_again(self, heartbeats: Sequence[str]) -> None:
        """Says in each partition that everything was told again."""
        await self._database.rows("insert_republished", list(heartbeats))

    async def note_republish(
        self, by: By, key: RecipientKey | None, detail: Mapping[str, object]
    ) -> None:
        """Who had what told again, and why."""
        text = json.dumps(detail)
        await self._database.rows("insert_republish", by.whom, by.why, key, text)

    async def request_provider_import(self, scope: str) -> None:
        await self._database.rows("request_provider_import", scope)

    async def provider_imports(self) -> list[Row]:
        """How far the import of each region's list is."""
        return _plain(await self._database.rows("read_provider_imports", None))


def _plain(rows: Iterable[Any]) -> list[Row]:
    """Times as text, as JSON has them."""
    return [
        {n: v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()} for row in rows
    ]
