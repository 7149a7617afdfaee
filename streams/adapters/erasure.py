"""Erases a recipient in PostgreSQL: page by page of messages, each page one transaction with its entry in the audit log."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from streams.adapters.postgres import Database
from streams.adapters.queries import query
from streams.domain.addresses import RecipientKey
from streams.domain.by_hand import Decision, Page
from streams.domain.erasure import WHY_CANCELLED, Erased, Kind

Row = dict[str, Any]
_FIND: Final = {Kind.OWN: "find_recipient_emails", Kind.COPIES: "find_recipient_copies"}
_ERASE: Final = {Kind.OWN: "erase_emails", Kind.COPIES: "erase_copies"}
_OPEN: Final = ("pending", "sending", "ambiguous")


class Erasure:
    """Uses a pool that is started. What is broken off is found again: an erased message is passed over."""

    def __init__(self, database: Database, key: RecipientKey, who: Decision) -> None:
        self._database = database
        self._key = key
        self._who = who

    async def page(self, kind: Kind, at: Page) -> Sequence[Row]:
        """The next messages that still have the address: id and state."""
        rows = await self._database.rows(_FIND[kind], self._key, at.after, at.limit)
        return [{"id": UUID(bytes=row["id"].bytes), "state": row["state"]} for row in rows]

    async def erase(self, kind: Kind, page: Sequence[Row], done: Erased) -> None:
        """Cancels what still waits, then empties what has ended; counts it in done."""
        ids = [row["id"] for row in page]
        waiting = [row["id"] for row in page if row["state"] in _OPEN and kind is Kind.OWN]
        async with self._database.transaction() as connection:
            stopped = await connection.fetch(query("stop_emails"), waiting, WHY_CANCELLED)
            erased: int = await connection.fetchval(
                query(_ERASE[kind]), self._key, ids, self._who.by_whom, self._who.why
            )
        done.cancelled += sum(row["outcome"] == "cancelled" for row in stopped)
        _count(done, kind, erased, len(ids) - erased)

    def count(self, kind: Kind, page: Sequence[Row], done: Erased) -> None:
        """What erase() would do, as far as states alone tell it."""
        held = {"sending"} if kind is Kind.OWN else set(_OPEN)
        left = sum(row["state"] in held for row in page)
        if kind is Kind.OWN:
            done.cancelled += sum(row["state"] in ("pending", "ambiguous") for row in page)
        _count(done, kind, len(page) - left, left)

    async def rest(self, done: Erased, *, dry_run: bool) -> None:
        """What is kept of the recipient besides messages."""
        (row,) = await self._database.rows(
            "erase_recipient", self._key, self._who.by_whom, self._who.why, dry_run
        )
        counts: Mapping[str, int] = dict(row)
        done.events, done.states = counts["events"], counts["states"]
        done.addresses, done.suppressions = counts["addresses"], counts["suppressions"]


def _count(done: Erased, kind: Kind, erased: int, left: int) -> None:
    if kind is Kind.OWN:
        done.messages += erased
    else:
        done.copies += erased
    done.left += left
