"""Which found event is which expected one, where several could be."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Slot = TypeVar("Slot")
Item = TypeVar("Item")


def unmatched(
    slots: Sequence[tuple[Slot, bool]], items: Sequence[Item], fits: Callable[[Slot, Item], bool]
) -> tuple[list[Slot], list[Item]]:
    """The mandatory slots and the items that are left over in the best pairing; a slot is (what is wanted, is it optional)."""
    taken: dict[int, int] = {}  # item -> slot
    edges = [[i for i, item in enumerate(items) if fits(slot, item)] for slot, _ in slots]

    def place(slot: int, seen: set[int]) -> bool:
        for item in edges[slot]:
            if item in seen:
                continue
            seen.add(item)
            if item not in taken or place(taken[item], seen):
                taken[item] = slot
                return True
        return False

    # Mandatory ones first: a slot that is filled once stays filled when others are placed.
    order = sorted(range(len(slots)), key=lambda n: slots[n][1])
    filled = {n for n in order if place(n, set())}
    return (
        [slot for n, (slot, optional) in enumerate(slots) if n not in filled and not optional],
        [item for n, item in enumerate(items) if n not in taken],
    )
