"""Polling: up to where the feed has been read without a gap, and how relays share its keys.

A sequence number is drawn before its transaction commits, so a row may appear behind newer ones. Whoever draws one holds the
feed's lock from before the draw until its rows are seen (or never will be), so the transactions that hold it now are all from
which a row may still come. Each is remembered with a number that all of its own lie behind.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

# How long the lease of a shard is on the server's clock. Its holder counts it on its own, from before it asked, and on less.
LEASE_S: Final = 8.0
OWN_LEASE_S: Final = 7.0
# A prepared transaction holds its locks under another name than before it was prepared.
_PREPARED: Final = "-1/"


class Frontier:
    """Every row up to the cursor has been read, or belongs to one of the writers. Nothing behind the end is read yet.

    A hint for speed: whether a row is read is known by the row itself, so a wrong frontier delays, and a look at everything mends it.
    """

    def __init__(self) -> None:
        self.cursor = 0
        self.end = 0
        self._floors: dict[str, int] = {}

    @property
    def is_behind(self) -> bool:
        """Whether there may be something to read."""
        return self.cursor < self.end

    def looked(self, end: int, writers: Collection[str]) -> None:
        """The sequence stood at end; after that was read, these transactions held the feed's lock. Pages are read after both."""
        if end < self.end:
            # After a failover the sequence may have gone back.
            self.cursor = self.end = 0
            self._floors = {}
        known, before = self._floors, self.end
        lowest = min((*known.values(), before))
        self._floors = {
            name: known.get(name, lowest if name.startswith(_PREPARED) else before)
            for name in writers
        }
        ended = [floor for name, floor in known.items() if name not in self._floors]
        self.cursor = min((self.cursor, *ended))
        self.end = end

    def read(self, after: int, last: int | None) -> None:
        """A page was read from behind `after` to this number; None: to the end. Nothing, if a row was missed meanwhile."""
        if self.cursor == after:
            self.cursor = self.end if last is None else last

    def missed(self, number: int) -> None:
        """A row of this number was found that has not been read."""
        self.cursor = min(self.cursor, number - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """Rows that this snapshot sees are in Kafka, in this history of the cluster."""

    snapshot: str
    timeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What PostgreSQL said to a relay: the shards it holds, how many nobody holds, how many relays live, itself among them."""

    held: Sequence[int]
    free: int
    pollers: int


def fair_share(shards: int, pollers: int) -> int:
    """How many shards one of so many relays holds at most."""
    return -(-shards // max(1, pollers))


def surplus(renewal: Renewal, shards: int) -> list[int]:
    """The shards that have to go to other relays."""
    return sorted(renewal.held)[fair_share(shards, renewal.pollers) :]


def wanted(renewal: Renewal, shards: int) -> int:
    """How many more shards this relay should take, of those that nobody holds."""
    return max(0, min(renewal.free, fair_share(shards, renewal.pollers) - len(renewal.held)))


# What a row is deleted by: its sequence number, id and time, each as PostgreSQL's text but the first.
RowName = tuple[int, str, str]


def unread(found: Iterable[RowName], in_flight: Collection[RowName]) -> int | None:
    """The lowest number of a row that is not in flight, or None."""
    return min((row[0] for row in found if row not in in_flight), default=None)
