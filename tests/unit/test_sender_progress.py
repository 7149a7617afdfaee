"""When a member of the group counts as stuck, and what is done then."""

from dataclasses import dataclass, field
from typing import Any, cast

from streams.domain.errors import Unavailable
from streams.domain.records import TopicPartition
from streams.domain.topics import Lane
from streams.ports.sender import Place, PointerFeed
from streams.runtime.lifecycle import Health
from streams.sending.progress import DUTY, REJOIN_AFTER_S, Progress


@dataclass
class Feed:
    """Where partition 0 stands."""

    position: int = 0
    end: int = 0
    away: bool = False
    stopped: int = 0
    now: float = 0.0
    lanes: list[Lane] = field(default_factory=lambda: list(Lane))

    async def places(self) -> list[Place]:
        if self.away:
            raise Unavailable("Kafka is away")
        return [Place(Lane.BULK, TopicPartition("bulk", 0), self.position, self.end)]

    async def stop(self) -> None:
        self.stopped += 1


class Scene:
    def __init__(self) -> None:
        self.feed = feed = Feed()
        self.health = Health("sender", clock=lambda: feed.now, stuck_after_s=50.0)
        self.progress = Progress(
            feed=cast(PointerFeed, cast(Any, feed)),
            health=self.health,
            open_lanes=lambda: feed.lanes,
            clock=lambda: feed.now,
        )
        self.progress.assignment(known=True)

    async def pass_(self, seconds: float, *, reading: int = 0) -> None:
        """Time passes, looked at every three seconds."""
        until = self.feed.now + seconds
        while self.feed.now < until:
            await self.progress.look()
            self.feed.now += 3.0
            self.feed.position += reading

    def is_stuck(self) -> bool:
        return DUTY in self.health.stuck()


async def test_pointers_that_nobody_reads_lead_to_a_new_member_and_then_fail_liveness() -> None:
    scene = Scene()
    await scene.pass_(30)
    scene.feed.end = 10
    await scene.pass_(REJOIN_AFTER_S - 5)
    assert scene.feed.stopped == 0
    await scene.pass_(10)
    assert scene.feed.stopped == 1
    assert not scene.is_stuck()
    await scene.pass_(35)
    assert scene.is_stuck()
    scene.feed.position = 10
    await scene.pass_(3)
    assert not scene.is_stuck()


async def test_slow_progress_is_progress() -> None:
    scene = Scene()
    scene.feed.end = 10**6
    await scene.pass_(300, reading=1)
    assert not scene.is_stuck()
    assert scene.feed.stopped == 0


async def test_lane_that_is_closed_for_want_of_room_is_not_stuck() -> None:
    scene = Scene()
    scene.feed.end, scene.feed.lanes = 10, [Lane.TRANSACTIONAL]
    await scene.pass_(300)
    assert not scene.is_stuck()


async def test_kafka_that_is_away_does_not_fail_liveness() -> None:
    scene = Scene()
    scene.feed.end, scene.feed.away = 10, True
    scene.progress.assignment(known=False)
    await scene.pass_(300)
    assert not scene.is_stuck()
    assert scene.feed.stopped == 0


async def test_group_that_tells_no_partitions_is_joined_anew_and_fails_liveness() -> None:
    scene = Scene()
    await scene.pass_(3)
    scene.progress.assignment(known=False)
    await scene.pass_(30)
    assert scene.feed.stopped == 1
    await scene.pass_(30)
    assert scene.is_stuck()
    scene.progress.assignment(known=True)
    await scene.pass_(3)
    assert not scene.is_stuck()


async def test_commits_that_fail_while_kafka_answers_are_a_standstill() -> None:
    scene = Scene()
    await scene.pass_(3)
    for _ in range(20):
        scene.progress.commits(work=False)
        await scene.pass_(3)
    assert scene.feed.stopped
    assert scene.is_stuck()
    scene.progress.commits(work=True)
    await scene.pass_(3)
    assert not scene.is_stuck()


async def test_what_stood_still_during_an_outage_of_kafka_is_counted_from_its_end() -> None:
    scene = Scene()
    await scene.pass_(3)
    scene.progress.commits(work=False)
    scene.progress.assignment(known=False)
    scene.feed.away = True
    await scene.pass_(60)
    scene.feed.away = False
    scene.progress.commits(work=False)
    await scene.pass_(REJOIN_AFTER_S - 5)
    assert scene.feed.stopped == 0
    assert not scene.is_stuck()
    await scene.pass_(10)
    assert scene.feed.stopped == 1
