"""Up to where the slot may be confirmed: the contiguous prefix of transactions whose every record is acknowledged.

Nothing is kept per row. A batch remembers the transaction of its first row; since batches are opened in the order of
the stream, every transaction older than that of the oldest unacknowledged batch is acknowledged as a whole.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NewType

Lsn = NewType("Lsn", int)

NOWHERE: Final = Lsn(0)


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> Lsn:
    """The LSN of PostgreSQL's text; ValueError if it is none."""
    high, low = text.split("/")
    return Lsn(int(high, 16) << 32 | int(low, 16))


class Transaction:
    """One committed transaction of the stream. end is 0 until its Commit message is read; it is confirmed up to end."""

    __slots__ = ("committed_at", "end", "ordinal")

    def __init__(self, ordinal: int, committed_at: float, end: Lsn = NOWHERE) -> None:
        self.ordinal = ordinal
        self.committed_at = committed_at
        self.end = end


class Outstanding:
    """A batch that is not acknowledged yet, by the transaction of its first row."""

    __slots__ = ("acknowledged", "first")

    def __init__(self, first: Transaction) -> None:
        self.first = first
        self.acknowledged = False


class AcknowledgedPrefix:
    """What was read and what of it is acknowledged, since the stream was opened at `start`."""

    def __init__(self, start: Lsn = NOWHERE) -> None:
        self._confirmable = start
        # The newest Commit inside the prefix; what is beyond it held no transaction.
        self.commit = start
        self._complete: deque[Transaction] = deque()
        self._outstanding: deque[Outstanding] = deque()

    def opened(self, first: Transaction) -> Outstanding:
        """A batch begins with a row of this transaction. Called in the order of the stream."""
        batch = Outstanding(first)
        self._outstanding.append(batch)
        return batch

    def acknowledged(self, batch: Outstanding) -> None:
        """Kafka has every record of the batch. In any order."""
        batch.acknowledged = True

    def committed(self, transactions: Iterable[Transaction]) -> None:
        """The Commit messages of these were read, and all of their rows are in batches. In the order of the stream."""
        self._complete.extend(transactions)

    def reached(self, position: Lsn, ordinal: int) -> None:
        """Nothing else is in the stream up to this position; called with no transaction open, with the last one's ordinal."""
        if self._complete and self._complete[-1].committed_at == 0.0:
            self._complete.pop()
        self._complete.append(Transaction(ordinal, 0.0, position))

    def confirmable(self) -> Lsn:
        """The position up to which everything is acknowledged. Never goes back."""
        outstanding, complete = self._outstanding, self._complete
        while outstanding and outstanding[0].acknowledged:
            outstanding.popleft()
        bound = outstanding[0].first.ordinal if outstanding else None
        newest = commit = None
        while complete and (bound is None or complete[0].ordinal < bound):
            newest = complete.popleft()
            if newest.committed_at:
                commit = newest
        if commit is not None:
            self.commit = commit.end
        if newest is not None:
            self._confirmable = max(self._confirmable, self.commit, newest.end)
        return self._confirmable

    def oldest_committed_at(self) -> float | None:
        """When the oldest transaction that waits for Kafka was committed (seconds since 1970); None if none waits."""
        for batch in self._outstanding:
            if not batch.acknowledged:
                return batch.first.committed_at
        return None
