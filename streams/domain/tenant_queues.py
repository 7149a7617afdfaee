"""Pointers that wait in memory: one bounded queue a tenant and lane, taken round robin, first what expires first.

Transactional mail goes before bulk mail. At most one pointer of a recipient is out at a time.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.domain.addresses import RecipientKey
from streams.domain.pointers import Pointer
from streams.domain.topics import Lane


class _Waiting(NamedTuple):
    """Orders a heap: no time of expiry comes last, then the time it is due, then the order of arrival."""

    expires: float
    due: float
    number: int
    pointer: Pointer


@dataclass(slots=True)
class _Tenant:
    """What waits for one tenant in one lane, by partition, since a partition may have to wait alone."""

    heaps: dict[int, list[_Waiting]] = field(default_factory=dict)

    def pop(self, usable: Callable[[int], bool]) -> Pointer | None:
        heads = [heap for number, heap in self.heaps.items() if heap and usable(number)]
        if not heads:
            return None
        best = min(heads, key=lambda heap: heap[0][:3])
        return heapq.heappop(best).pointer


class TenantQueues:
    """put, take, free. A pointer that was taken keeps its recipient busy until free()."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, dict[str, _Tenant]] = {lane: {} for lane in Lane}
        self._sizes: dict[Lane, int] = dict.fromkeys(Lane, 0)
        self._turns: dict[Lane, deque[str]] = {lane: deque() for lane in Lane}
        self._busy: set[RecipientKey] = set()
        self._blocked: dict[RecipientKey, deque[Pointer]] = {}
        self._number = 0

    def put(self, pointers: Iterable[Pointer]) -> None:
        """Queues them; also those that were taken and whose turn did not come (after free())."""
        for pointer in pointers:
            self._sizes[pointer.lane] += 1
            self._push(pointer)

    def _push(self, pointer: Pointer) -> None:
        tenants = self._lanes[pointer.lane]
        tenant = tenants.get(pointer.tenant)
        if tenant is None:
            tenant = tenants[pointer.tenant] = _Tenant()
            self._turns[pointer.lane].append(pointer.tenant)
        self._number += 1
        heap = tenant.heaps.setdefault(pointer.partition, [])
        heapq.heappush(heap, _waiting(pointer, self._number))

    def take(self, most: int, usable: Callable[[int, Lane], bool]) -> list[Pointer]:
        """Up to so many, one a tenant in turn, only of partitions that are usable, never of a busy recipient."""
        taken: list[Pointer] = []
        for lane in (Lane.TRANSACTIONAL, Lane.BULK):
            self._take_lane(lane, most, usable, taken)
        return taken

    def _take_lane(
        self, lane: Lane, most: int, usable: Callable[[int, Lane], bool], taken: list[Pointer]
    ) -> None:
        turns, tenants = self._turns[lane], self._lanes[lane]
        empty_handed = 0
        while len(taken) < most and empty_handed < len(turns):
            name = turns[0]
            pointer = tenants[name].pop(lambda number: usable(number, lane))
            if pointer is None and not any(tenants[name].heaps.values()):
                turns.popleft()
                del tenants[name]
                continue
            turns.rotate(-1)
            if pointer is None:
                empty_handed += 1
                continue
            empty_handed = 0
            if pointer.recipient_key in self._busy:
                self._blocked.setdefault(pointer.recipient_key, deque()).append(pointer)
                continue
            self._busy.add(pointer.recipient_key)
            self._sizes[lane] -= 1
            taken.append(pointer)

    def free(self, key: RecipientKey) -> None:
        """The recipient's pointer that was taken is done with; the next one that waited behind it queues again."""
        self._busy.discard(key)
        blocked = self._blocked.get(key)
        if blocked:
            self._push(blocked.popleft())
            if not blocked:
                del self._blocked[key]

    def clear(self) -> None:
        """Forgets all that waits: somebody else reads these partitions now, or we read them again."""
        for lane in Lane:
            self._lanes[lane].clear()
            self._turns[lane].clear()
            self._sizes[lane] = 0
        self._blocked.clear()

    def size(self, lane: Lane) -> int:
        """How many wait in the lane, those behind a busy recipient included."""
        return self._sizes[lane]

    def __len__(self) -> int:
        return sum(self._sizes.values())


def _waiting(pointer: Pointer, number: int) -> _Waiting:
    expires = pointer.expires.timestamp() if pointer.expires else float("inf")
    return _Waiting(expires, pointer.due.timestamp(), number, pointer)
