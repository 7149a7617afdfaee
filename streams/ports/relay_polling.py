"""What the relay needs in polling mode: pages of the feed, leases of shards, removal of what Kafka has."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from streams.domain.acknowledgement import Transaction
from streams.domain.feed_rows import FeedRow, Refusal
from streams.domain.polling import Acknowledged, Renewal, RowName


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some rows of the feed in order, as rows of one transaction. complete: there is none behind the last up to where was asked for."""

    transaction: Transaction
    rows: Sequence[FeedRow]
    names: Sequence[RowName]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Which of how many shards of the keys are read; None for the acknowledged rows: there are none left in the feed."""

    shards: int
    held: Sequence[int]
    acknowledged: Acknowledged | None = None


class Announcer(Protocol):
    """Unavailable when PostgreSQL is away."""

    async def announce(self, keys: Sequence[str]) -> None:
        """Puts the suppressions of these recipients, as they are, into the feed again."""


class PollingStore(Announcer, Protocol):
    """What a polling relay reads and writes by SQL; no method needs a session. Unavailable when PostgreSQL is away."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check_setup(self) -> None:
        """Misconfigured, with one sentence, if the database is not as polling needs it, or a relay streams from the slot."""

    async def prepare(self, shards: int) -> None:
        """Makes the shards, if they are not there; Misconfigured if relays are at work with another number of them."""

    async def begin(self) -> Acknowledged | None:
        """Takes the feed over from a relay in wal mode, if there was one; what is left of what that had acknowledged."""

    # Shards

    async def renew(self, shards: int) -> Renewal | None:
        """Renews the leases; None if there are not so many shards any more."""

    async def claim(self, shards: int, most: int) -> list[int]:
        """Takes free shards; those taken."""

    async def release(self, held: Sequence[int]) -> None:
        """Gives shards back."""

    async def leave(self) -> None:
        """This relay ends."""

    # The feed

    async def end(self) -> int:
        """The number that the feed's sequence gave last."""

    async def writers(self) -> Collection[str]:
        """The transactions that hold the feed's lock for writing."""

    async def page(self, share: Share, *, ordinal: int, after: int, end: int) -> Page:
        """Rows behind `after` up to `end`, as a transaction of this ordinal that ends there and began with the first row's insert."""

    async def behind(self, share: Share, *, after: int, end: int, most: int) -> list[RowName]:
        """The first rows of the feed behind `after` up to `end`."""

    async def acknowledged(
        self, done: Acknowledged, *, after: int, end: int, most: int
    ) -> list[RowName]:
        """The first rows there that the snapshot sees."""

    async def delete(self, names: Sequence[RowName]) -> None:
        """Returns when they are removed durably."""

    async def forget_acknowledged(self) -> None:
        """No row of those is left."""

    async def set_aside(self, row: FeedRow, reason: Refusal, detail: str | None) -> None:
        """Returns when the row is kept where a person finds it."""
