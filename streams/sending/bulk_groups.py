"""Which claimed rows go out together in one bulk call."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from streams.domain.bulk_mail import LARGEST_CALL, MAX_ENTRIES, BulkEntry, Shared
from streams.domain.pacing import Slot
from streams.sending.work import Work

# Of the time that the first message may be late, so much has to be left when the slot of the last one begins.
_LEFT: Final = 0.5


def common_slot(works: Sequence[Work]) -> Slot:
    """When a call that puts all of them out at once may begin: all their slots have begun, and none has ended.

    So every recipient of the call leaves within the slot that was granted for it, and the rate holds as with single calls.
    """
    return Slot(
        earliest=max(work.slot.earliest for work in works),
        latest=min(work.slot.latest for work in works),
    )


@dataclass(slots=True)
class _Group:
    works: list[Work] = field(default_factory=list)
    size: int = 0

    def takes(self, work: Work, entry: BulkEntry, now: float) -> bool:
        if len(self.works) >= MAX_ENTRIES or self.size + len(entry.body) > LARGEST_CALL:
            return False
        first = self.works[0].slot
        slot = common_slot([*self.works, work])
        return slot.latest - max(slot.earliest, now) >= _LEFT * (first.latest - first.earliest)


def grouped(
    works: Sequence[Work],
    entry_of: Callable[[Work], BulkEntry | None],
    *,
    now: Callable[[], float] = time.monotonic,
) -> list[list[Work]]:
    """The works in groups, in order of their first ones; a group of several is for a bulk call. Sets `entry` of each."""
    groups: list[list[Work]] = []
    growing: dict[Shared, _Group] = {}
    at = now()
    for work in works:
        entry = work.entry = entry_of(work)
        if entry is None:
            groups.append([work])
            continue
        group = growing.get(entry.shared)
        if group is None or not group.takes(work, entry, at):
            group = growing[entry.shared] = _Group()
            groups.append(group.works)
        group.works.append(work)
        group.size += len(entry.body)
    return groups
