"""Senders with a name in the group: a restart moves no partitions, and of two with one name the first one ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

import devservers
from streams.adapters.kafka_pointers import KafkaPointers
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.topics import Lane, Topics

pytestmark = pytest.mark.servers


class Member:
    """A sender as far as the group is concerned."""

    def __init__(self, servers: devservers.Servers, topics: Topics, name: str | None) -> None:
        self.pointers = KafkaPointers(
            servers.kafka.bootstrap_servers, topics, client_id="test", instance_id=name
        )
        self.assigned: list[frozenset[int]] = []
        self.revoked: list[frozenset[int]] = []
        self.error: Misconfigured | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.pointers.start(on_revoked=self._on_revoked, on_assigned=self._on_assigned)
        self._fetching = asyncio.create_task(self._fetch())

    async def _on_revoked(self, partitions: frozenset[int]) -> None:
        if partitions:
            self.revoked.append(partitions)

    async def _on_assigned(self, partitions: frozenset[int]) -> None:
        self.assigned.append(partitions)

    async def _fetch(self) -> None:
        while True:
            try:
                await self.pointers.fetch(list(Lane), most=10, timeout_s=0.1)
            except Misconfigured as error:
                self.error = error
                return
            except Unavailable:
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
        await self.pointers.stop()

    @property
    def owned(self) -> frozenset[int]:
        return self.assigned[-1] if len(self.assigned) > len(self.revoked) else frozenset()


Make = Callable[[str | None], Member]


@pytest.fixture
async def make(servers: devservers.Servers, topics: Topics) -> AsyncIterator[Make]:
    made: list[Member] = []

    def of(name: str | None) -> Member:
        made.append(Member(servers, topics, name))
        return made[-1]

    yield of
    for member in made:
        await member.stop()


async def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


async def test_restart_of_a_named_sender_moves_no_partition_of_others(make: Make) -> None:
    first, second = make("sender-0"), make("sender-1")
    await first.start()
    await second.start()
    await until(lambda: first.owned | second.owned == {0, 1, 2} and bool(second.owned))
    mine, theirs, moves = second.owned, first.owned, len(first.assigned)
    await second.stop()
    again = make("sender-1")
    await again.start()
    await until(lambda: again.owned == mine)
    # Beats of the first one say that there is no rebalance; a new member of another name makes one, at last.
    assert (first.owned, len(first.assigned)) == (theirs, moves)
    other = make(None)
    await other.start()
    await until(lambda: len(first.assigned) > moves and bool(other.owned))
    assert len(first.assigned) == moves + 1


async def test_of_two_senders_with_one_name_the_first_one_ends_and_does_not_come_back(
    make: Make,
) -> None:
    first, second = make("sender-0"), make("sender-0")
    await first.start()
    await until(lambda: first.owned == {0, 1, 2})
    await second.start()
    await until(lambda: first.error is not None)
    assert "another process is sender-0 in the group" in str(first.error)
    assert first.revoked == [frozenset({0, 1, 2})]
    with pytest.raises(Misconfigured):
        await first.pointers.fetch(list(Lane), most=1, timeout_s=0.1)
    await first.stop()
    # Whoever comes next has the second one give partitions up once: so it was a member all the time.
    third = make("sender-1")
    await third.start()
    await until(lambda: bool(third.owned) and bool(second.owned))
    assert second.revoked == [frozenset({0, 1, 2})]
    assert second.error is None
