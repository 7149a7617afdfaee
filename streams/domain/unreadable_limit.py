"""How many unreadable records are the writer's fault: more than that in a short time, and we are the bug."""

from collections import deque


class UnreadableLimit:
    """At most so many in so many seconds of a monotonic clock."""

    __slots__ = ("_seen", "most", "within_s")

    def __init__(self, *, most: int = 100, within_s: float = 600.0) -> None:
        self.most = most
        self.within_s = within_s
        self._seen: deque[float] = deque()

    def add(self, now: float) -> None:
        """One more was found."""
        self._seen.append(now)

    def allows(self, count: int, now: float) -> bool:
        """Whether so many more may be found now; 0: whether those that were found are not too many."""
        while self._seen and now - self._seen[0] > self.within_s:
            self._seen.popleft()
        return len(self._seen) + count <= self.most
