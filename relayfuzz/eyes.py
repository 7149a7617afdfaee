"""What a worker notes for the judge: when it became the one that writes, and which suppressions it gave a producer up with.

A line: kind, seconds since 1970, words. Kinds: `start pid`, `open why` (why: the slot was lost, or `-`), `close`,
`late key ...`.
"""

from typing import Any

from crash.journal import Journal


def install(journal: Journal) -> None:
    """Around the relay's own classes, in this process."""
    from streams.adapters.kafka_batches import KafkaBatches
    from streams.relay_polling_shards import Shards
    from streams.relay_slot import SlotOpening

    claim_before, close_before, take_before = SlotOpening.claim, KafkaBatches.close, Shards.claim

    async def claim(self: Any) -> Any:
        found = await claim_before(self)
        if hasattr(found, "lost"):
            journal.note("open", (found.lost or "-").replace(" ", "_"))
        return found

    async def take(self: Any) -> bool:
        found = await take_before(self)
        if found:
            journal.note("open", "-")
        return found

    async def close(self: Any) -> list[bytes]:
        late = await close_before(self)
        journal.note("close")
        if late:
            journal.note("late", *sorted({key.decode("ascii", "replace") for key in late}))
        return late

    SlotOpening.claim = claim  # type: ignore[method-assign]
    Shards.claim = take  # type: ignore[method-assign]
    KafkaBatches.close = close  # type: ignore[method-assign]
