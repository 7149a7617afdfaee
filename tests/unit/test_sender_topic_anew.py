"""A topic that is deleted and made anew while pointers of the old one are under way, under the same offsets."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from streams.domain.attempts import Presence
from streams.domain.pointers import Pointer
from streams.domain.records import Record, TopicPartition
from streams.domain.topics import Lane
from streams.sending.pointer_intake import PointerIntake
from streams.sending.signals import Signal
from tests.unit.test_sender_pointers import GOOD

PARTITION = TopicPartition("mail.outbox.bulk", 2)


def record(offset: int, row: int) -> Record:
    value = json.dumps(GOOD | {"id": str(UUID(int=row))}).encode()
    return Record(
        topic=PARTITION.topic, partition=2, offset=offset, key=b"%032x" % row, value=value
    )


class Feed:
    """Gives what stands in `records`; keeps what was committed."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.committed: list[int] = []

    async def fetch(self, _: Collection[Lane], **__: Any) -> list[Record]:
        found, self.records = self.records, []
        return found

    async def commit(self, positions: Mapping[TopicPartition, int]) -> bool:
        self.committed.append(positions[PARTITION])
        return True


class Outbox:
    async def read_pending(self, pointers: Sequence[Pointer]) -> list[Presence]:
        return [Presence.PENDING for _ in pointers]


class World:
    def __init__(self) -> None:
        self.feed = Feed()
        self.intake = PointerIntake(
            feed=cast(Any, self.feed),
            outbox=cast(Any, Outbox()),
            unreadable=cast(Any, None),
            work=Signal(),
        )

    async def read(self, *records: Record) -> list[Pointer]:
        """Pointers of these, taken from the queues."""
        self.feed.records = list(records)
        await self.intake.fetch()
        await self.intake.sift()
        taken = self.intake.queues.take(100, lambda *_: True)
        return sorted(taken, key=lambda pointer: pointer.offset)


async def test_what_ends_of_the_old_topic_commits_nothing_of_the_new_one() -> None:
    world = World()
    old = await world.read(record(0, 10), record(1, 11))
    new = await world.read(record(0, 20), record(1, 21))
    assert [len(old), len(new)] == [2, 2]
    for pointer in old:
        world.intake.finish(pointer)
    await world.intake.commit()
    assert world.feed.committed == []
    world.intake.finish(new[0])
    await world.intake.commit()
    world.intake.finish(new[1])
    await world.intake.commit()
    assert world.feed.committed == [1, 2]


async def test_what_has_to_wait_again_of_the_old_topic_is_not_forgotten() -> None:
    world = World()
    old = await world.read(record(0, 10), record(1, 11))
    await world.read(record(0, 20))
    for pointer in old:
        world.intake.queues.free(pointer.recipient_key)
    world.intake.put_back(old)
    assert {p.id for p in await world.read()} == {pointer.id for pointer in old}
    world.intake.forget()
    world.intake.put_back(old)
    assert await world.read() == []
