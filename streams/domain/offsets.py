"""Which offset of a partition may be committed: the contiguous prefix of what is finished, never past a gap."""

from collections import deque


class ContiguousOffsets:
    """The records of one partition in one assignment. Records are tracked in the order of their offsets."""

    __slots__ = ("_committed", "_finished", "_next", "_open")

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._finished: set[int] = set()
        self._next: int | None = None
        self._committed: int | None = None

    def track(self, offset: int) -> None:
        """The record was fetched; ValueError if it is not behind all that were."""
        if (self._open and offset <= self._open[-1]) or offset < (self._next or 0):
            raise ValueError(f"offset {offset} comes after a later one")
        self._open.append(offset)

    def finish(self, offset: int) -> None:
        """The record's outcome is durable. Finishing twice, or what was never tracked, changes nothing."""
        if not self._open or not self._open[0] <= offset <= self._open[-1]:
            return
        self._finished.add(offset)
        while self._open and self._open[0] in self._finished:
            done = self._open.popleft()
            self._finished.discard(done)
            self._next = done + 1

    def is_open(self, offset: int) -> bool:
        """Whether the record was fetched in this assignment and is not finished."""
        return (
            bool(self._open)
            and self._open[0] <= offset <= self._open[-1]
            and offset not in self._finished
        )

    def committable(self) -> int | None:
        """The position to commit, None if it was committed already or nothing is finished."""
        return None if self._next == self._committed else self._next

    def committed(self, position: int) -> None:
        """The position was committed."""
        self._committed = position

    @property
    def settled(self) -> bool:
        """Whether all that was fetched is finished, and committed."""
        return not self._open and self.committable() is None
