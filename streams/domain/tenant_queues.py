"""Pointers that wait in memory: one queue a tenant and lane, shared out fairly, within a tenant first what expires first.

Start-time fair queueing: each tenant has a virtual time at which its next message begins, and the earliest is next. A
message moves it by its recipients, as SES counts. A tenant that comes anew begins where the others stand, so it waits for
one message, however many tenants have queues and however long these are; in turns it would wait for a whole round.
Transactional mail goes before bulk mail. At most one pointer of a recipient is out at a time.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

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
    """What waits for one tenant in one lane, by partition, since a partition may have to wait alone.

    begins: the virtual time of its next message. turn: the one entry of the lane's order that counts.
    """

    begins: float
    turn: int = 0
    heaps: dict[int, list[_Waiting]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not any(self.heaps.values())

    def pop(self, usable: Callable[[int], bool]) -> Pointer | None:
        heads = [heap for number, heap in self.heaps.items() if heap and usable(number)]
        if not heads:
            return None
        best = min(heads, key=lambda heap: heap[0][:3])
        return heapq.heappop(best).pointer


class _Lane:
    """The tenants of a lane in the order of their next messages. size: those behind a busy recipient too."""

    def __init__(self) -> None:
        self.size = 0
        self._tenants: dict[str, _Tenant] = {}
        # Who is next: (begins, turn, name). An entry whose turn is not its tenant's is of the past.
        self._order: list[tuple[float, int, str]] = []
        self._turn = 0
        self._now = 0.0

    def push(self, waiting: _Waiting) -> None:
        name = waiting.pointer.tenant
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(begins=self._now)
            self.line_up([name])
        heapq.heappush(tenant.heaps.setdefault(waiting.pointer.partition, []), waiting)

    def pop(self, usable: Callable[[int], bool], passed: list[str]) -> Pointer | None:
        """The next pointer of a usable partition, None if there is none. Tenants passed over until then are added to
        passed, for line_up() afterwards."""
        while self._order:
            begins, turn, name = heapq.heappop(self._order)
            tenant = self._tenants.get(name)
            if tenant is None or tenant.turn != turn:
                continue
            if tenant.is_empty:
                del self._tenants[name]
                self._now = max(self._now, begins)
                continue
            pointer = tenant.pop(usable)
            if pointer is None:
                passed.append(name)
                continue
            self.line_up([name])
            return pointer
        return None

    def line_up(self, names: Iterable[str]) -> None:
        """What could not go out before gives nobody a right to all of the rate afterwards."""
        for name in names:
            tenant = self._tenants[name]
            self._turn += 1
            tenant.turn = self._turn
            tenant.begins = max(tenant.begins, self._now)
            heapq.heappush(self._order, (tenant.begins, self._turn, name))

    def charge(self, pointer: Pointer) -> None:
        """The pointer is on its way: its tenant's next message begins that much later."""
        tenant = self._tenants[pointer.tenant]
        self._now = max(self._now, tenant.begins)
        tenant.begins += pointer.recipients
        self.line_up([pointer.tenant])

    def refund(self, pointer: Pointer) -> None:
        """It does not go after all: as if it had not been taken."""
        tenant = self._tenants[pointer.tenant]
        tenant.begins -= pointer.recipients
        self._now = min(self._now, tenant.begins)
        self.line_up([pointer.tenant])


class TenantQueues:
    """put, take, free. A pointer that was taken keeps its recipient busy until free()."""

    def __init__(self) -> None:
        self._lanes = {lane: _Lane() for lane in Lane}
        self._busy: set[RecipientKey] = set()
        self._blocked: dict[RecipientKey, deque[Pointer]] = {}
        # Pointers of the last take: one that is put back is not charged.
        self._charged: set[UUID] = set()
        self._number = 0

    def put(self, pointers: Iterable[Pointer]) -> None:
        """Queues them; also those of the last take() whose turn did not come (after free())."""
        for pointer in pointers:
            lane = self._lanes[pointer.lane]
            lane.size += 1
            self._push(pointer)
            if pointer.id in self._charged:
                self._charged.remove(pointer.id)
                lane.refund(pointer)

    def _push(self, pointer: Pointer) -> None:
        self._number += 1
        self._lanes[pointer.lane].push(_waiting(pointer, self._number))

    def take(self, most: int, usable: Callable[[int, Lane], bool]) -> list[Pointer]:
        """Up to so many in the order of their turns, only of partitions that are usable, never of a busy recipient."""
        taken: list[Pointer] = []
        self._charged.clear()
        for lane in (Lane.TRANSACTIONAL, Lane.BULK):
            self._take_lane(lane, most, usable, taken)
        return taken

    def _take_lane(
        self, name: Lane, most: int, usable: Callable[[int, Lane], bool], taken: list[Pointer]
    ) -> None:
        lane = self._lanes[name]
        passed: list[str] = []
        try:
            while len(taken) < most:
                pointer = lane.pop(lambda number: usable(number, name), passed)
                if pointer is None:
                    break
                if pointer.recipient_key in self._busy:
                    self._blocked.setdefault(pointer.recipient_key, deque()).append(pointer)
                    continue
                self._busy.add(pointer.recipient_key)
                self._charged.add(pointer.id)
                lane.charge(pointer)
                lane.size -= 1
                taken.append(pointer)
        finally:
            lane.line_up(passed)

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
        self._lanes = {lane: _Lane() for lane in Lane}
        self._blocked.clear()
        self._charged.clear()

    def size(self, lane: Lane) -> int:
        """How many wait in the lane, those behind a busy recipient included."""
        return self._lanes[lane].size

    def __len__(self) -> int:
        return sum(lane.size for lane in self._lanes.values())


def _waiting(pointer: Pointer, number: int) -> _Waiting:
    expires = pointer.expires.timestamp() if pointer.expires else float("inf")
    return _Waiting(expires, pointer.due.timestamp(), number, pointer)
