"""Looks at the suppression table of a sender in the moment before a call, with eyes of its own."""

from typing import Any, Final

_MOST: Final = 20_000


class Witness:
    """Says what the table knew of the recipient, whatever the sender made of it."""

    def __init__(self) -> None:
        from streams.suppression_table import SuppressionTable

        self._emails: dict[str, Any] = {}
        self._overruled: dict[Any, None] = {}
        self._table: Any = None
        original = SuppressionTable.__init__
        witness = self

        def made(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            witness._table = self

        SuppressionTable.__init__ = made  # type: ignore[method-assign]

    def overruled(self, outbox_ids: list[Any]) -> None:
        """The table knew a suppression of these, and PostgreSQL was asked and did not confirm it."""
        self._overruled.update(dict.fromkeys(outbox_ids))
        while len(self._overruled) > _MOST:
            del self._overruled[next(iter(self._overruled))]

    def claimed(self, emails: list[Any]) -> None:
        for email in emails:
            self._emails[str(email.attempt_id)] = email
        while len(self._emails) > _MOST:
            del self._emails[next(iter(self._emails))]

    def sees(self, attempt: str) -> str:
        """`ok`; `loading`: the table was not read up to the end captured at assignment; `known`: it holds a suppression in force
        for the recipient; `overruled`: PostgreSQL did not confirm it; `gone`: the partition is not ours any more."""
        email = self._emails.pop(attempt, None)
        if email is None:
            return "unclaimed"
        parts = self._table._partitions
        found = parts.get(_partition(email.recipient_key))
        if found is None:
            return "gone"
        if not found.caught_up:
            return "loading"
        clock = self._table._clock
        hit = found.entries.hit(email.recipient_key, email.tenant, email.lane, clock())
        if hit is None:
            return "ok"
        return "overruled" if email.id in self._overruled else "known"


def _partition(key: str) -> int:
    import os

    from streams.domain.partitioner import partition_of

    return partition_of(key.encode(), int(os.environ["MAILSTREAMS_PARTITIONS"]))
