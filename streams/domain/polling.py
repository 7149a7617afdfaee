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
_EPOCH: Final = 2**32
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

    def read(self, after: int, last: int) -> None:
        """Everything from behind `after` to this number was read. Nothing, if a row was missed meanwhile."""
        if self.cursor == after:
            self.cursor = last

    def missed(self, number: int) -> None:
        """A row of this number was found that has not been read."""
        self.cursor = min(self.cursor, number - 1)


class Window:
    """How many sequence numbers one statement looks at: as many as it passes in a moment, however many rows of them are removed and
    still kept by an old snapshot."""

    FIRST: Final = 500_000
    _QUICK_S: Final = 0.05
    _SLOW_S: Final = 0.5
    _FACTOR: Final = 4
    _LEAST: Final = 10_000

    def __init__(self) -> None:
        self.size = self.FIRST

    def end(self, after: int, end: int) -> int:
        """The end of the statement that begins behind `after`, at most `end`."""
        return min(end, after + self.size)

    def took(self, seconds: float) -> None:
        """A statement that looked at so many took so long."""
        if seconds < self._QUICK_S:
            self.size *= self._FACTOR
        elif seconds > self._SLOW_S:
            self.size = max(self._LEAST, self.size // self._FACTOR)


class Round:
    """Statements over everything up to a growing end, one after the other, then from the beginning again."""

    def __init__(self) -> None:
        self.window = Window()
        self._after = 0

    def next(self, end: int) -> tuple[int, int]:
        """Behind which number to look, and up to which."""
        if self._after >= end:
            self._after = 0
        return self._after, self.window.end(self._after, end)

    def looked(self, end: int) -> None:
        """The statement up to this number is done."""
        self._after = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """Rows that this snapshot sees are in Kafka, in this history of the cluster."""

    snapshot: str
    timeline: int


def snapshot_without(snapshot: str, xids: Iterable[int]) -> str:
    """The snapshot, as pg_snapshot's text, that sees what this one sees but these transactions, named by the lower 32 bits of
    their ids. They are within 2^31 of now, as all that PostgreSQL has not forgotten."""
    xmin, xmax, running = snapshot.split(":")
    hidden = {int(xid) for xid in running.split(",") if xid}
    for xid in xids:
        behind = (int(xmax) - xid) % _EPOCH
        # Those that are not older than all that is seen are not seen in any case.
        if 0 < behind < _EPOCH // 2:
            hidden.add(int(xmax) - behind)
    return f"{min(hidden, default=int(xmin))}:{xmax}:{','.join(map(str, sorted(hidden)))}"


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
