"""The ids of the latest events that were handled: at least as many as its size, at most twice as many."""

from collections.abc import Iterable


class Window:
    """Two sets: the older one goes when the younger one is full, so that nothing is moved one by one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._young or event_id in self._old

    def add(self, event_ids: Iterable[str]) -> None:
        self._young.update(event_ids)
        if len(self._young) >= self._size:
            self._old, self._young = self._young, set()
