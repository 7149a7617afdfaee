"""The subscriber on a real Kafka: nothing is skipped that was not done, nothing done comes again without need."""

import asyncio
import itertools
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

import devservers
from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import encode
from streams.subscribers import (
    Bounce,
    BounceReason,
    BounceType,
    DeliveryEvent,
    EventId,
    EventType,
    Skipped,
    Subscriber,
    Subscription,
    Why,
)
from tests.events_rig import eventually
from tests.integration.relay_setup import eventually as eventually_true

pytestmark = pytest.mark.servers
PARTITIONS = 3
_numbers = itertools.count()


def event(number: int, kind: EventType = EventType.DELIVERED, **fields: Any) -> DeliveryEvent:
    return DeliveryEvent(
        id=EventId(f"{number:032x}"),
        type=kind,
        time=datetime(2026, 1, 15, tzinfo=UTC),
        recipient_key=RecipientKey(f"{number % 50:032x}"),
        **{"tenant": "shop", **fields},
    )


@dataclass(slots=True, kw_only=True)
class Scene:
    """A topic, a producer for it, and groups that read it."""

    bootstrap_servers: str
    topic: str
    producer: AIOKafkaProducer
    group: str = field(default_factory=lambda: f"group-{os.getpid()}-{next(_numbers)}")

    def subscription(self, **settings: Any) -> Subscription:
        given = {"group": self.group, "commit_every_s": 60.0, **settings}
        return Subscription(bootstrap_servers=self.bootstrap_servers, topic=self.topic, **given)

    async def put(
        self, *events: DeliveryEvent | bytes | None, partition: int | None = None
    ) -> None:
        for made in events:
            key = made.recipient_key.encode() if isinstance(made, DeliveryEvent) else b"0" * 32
            value = encode(made) if isinstance(made, DeliveryEvent) else made
            await self.producer.send(self.topic, value, key=key, partition=partition)
        await self.producer.flush()

    async def committed(self) -> int:
        """Sum of the group's positions."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers, group_id=self.group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            found = [
                await consumer.committed(TopicPartition(self.topic, n)) for n in range(PARTITIONS)
            ]
        finally:
            await consumer.stop()
        return sum(offset or 0 for offset in found)


@pytest.fixture
async def scene(servers: devservers.Servers) -> AsyncIterator[Scene]:
    bootstrap_servers = servers.kafka.bootstrap_servers
    topic = f"subscribed-{os.getpid()}-{next(_numbers)}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await producer.start()
    try:
        yield Scene(bootstrap_servers=bootstrap_servers, topic=topic, producer=producer)
    finally:
        await producer.stop()
        await admin.delete_topics([topic])
        await admin.close()


async def take(events: Subscriber, count: int) -> list[DeliveryEvent]:
    """So many events; the last of them is in hand and not done."""
    async with asyncio.timeout(30):
        return [await anext(events) for _ in range(count)]


async def drain(events: Subscriber, until: Callable[[], bool]) -> list[DeliveryEvent]:
    """Reads on until it holds; all that was read is done then."""

    async def stop_in_time() -> None:
        await eventually(until, within_s=30)
        events.stop()

    async with asyncio.timeout(40):
        stopping = asyncio.create_task(stop_in_time())
        found = [one async for one in events]
        await stopping
    return found


async def test_events_arrive_typed_and_in_order_of_their_recipient(scene: Scene) -> None:
    bounce = Bounce(type=BounceType.PERMANENT, reason=BounceReason.MAILBOX_UNKNOWN)
    sent = [event(n, EventType.BOUNCED, bounce=bounce) for n in range(200)]
    await scene.put(*sent)
    async with Subscriber(scene.subscription()) as events:
        found = await take(events, 200)
    assert sorted(found, key=lambda e: e.id) == sent
    for key in {e.recipient_key for e in sent}:
        ids = [e.id for e in found if e.recipient_key == key]
        assert ids == sorted(ids)


async def test_fetches_that_have_ended_are_told_and_not_waited_for_in_silence(scene: Scene) -> None:
    async def failing() -> None:
        raise KafkaError("Unexpected error during data retrieval")

    await scene.put(event(1), event(2), partition=0)
    async with Subscriber(scene.subscription()) as events:
        await take(events, 2)
        fetcher = getattr(events._consumer, "_fetcher", None)
        assert fetcher is not None
        fetcher._fetch_task.cancel()
        await asyncio.wait([fetcher._fetch_task])
        fetcher._fetch_task = asyncio.create_task(failing())
        await scene.put(event(3), partition=0)
        with pytest.raises(KafkaError, match="data retrieval"):
            await take(events, 1)
    assert await scene.committed() == 2


async def test_what_is_in_hand_when_the_caller_leaves_comes_again_and_nothing_else(
    scene: Scene,
) -> None:
    await scene.put(*(event(n) for n in range(10)), partition=0)
    async with Subscriber(scene.subscription()) as events:
        first = await take(events, 4)
    assert await scene.committed() == 3
    async with Subscriber(scene.subscription()) as events:
        rest = await take(events, 7)
    assert [e.id for e in rest] == [event(n).id for n in range(3, 10)]
    assert rest[0] == first[-1]


async def test_an_error_of_the_caller_leaves_its_event_undone(scene: Scene) -> None:
    await scene.put(*(event(n) for n in range(5)), partition=0)

    async def fail_at_the_third() -> None:
        async with Subscriber(scene.subscription()) as events:
            async for one in events:
                if one.id == event(2).id:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_at_the_third()
    assert await scene.committed() == 2


@pytest.mark.parametrize("in_batches", [False, True])
async def test_a_loop_begun_anew_after_an_error_loses_nothing(
    scene: Scene, in_batches: bool
) -> None:
    await scene.put(*(event(n) for n in range(20)), partition=0)
    done: list[str] = []
    failures = 0
    async with Subscriber(scene.subscription(fetch=6)) as events, asyncio.timeout(30):
        while len(done) < 20:
            try:
                async for found in events.batches() if in_batches else events:
                    batch = [found] if isinstance(found, DeliveryEvent) else found
                    ids = [e.id for e in batch]
                    if failures < 4 and event(failures * 5).id in ids:
                        failures += 1
                        raise ZeroDivisionError
                    done += ids
                    if len(done) == 20:
                        break
            except ZeroDivisionError:
                continue
    assert failures == 4
    assert done == [event(n).id for n in range(20)]


async def test_stop_ends_the_iteration_with_everything_done(scene: Scene) -> None:
    await scene.put(*(event(n) for n in range(5)), partition=0)
    async with Subscriber(scene.subscription()) as events:
        found = await drain(events, lambda: events.counts.handed_out == 5)
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert len(found) == 5
    assert events.counts.done == 5
    assert await scene.committed() == 5


async def test_positions_are_committed_after_so_many_and_after_so_long(scene: Scene) -> None:
    await scene.put(*(event(n) for n in range(25)), partition=0)
    async with Subscriber(scene.subscription(commit_every=10)) as events:
        await take(events, 25)
        assert await scene.committed() == 20
        await scene.put(event(25), partition=0)

    async def committed_all() -> bool:
        return await scene.committed() == 26

    async with Subscriber(scene.subscription(commit_every_s=0.1)) as events:
        waiting = asyncio.create_task(take(events, 7))
        await eventually_true(committed_all)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_batches_are_done_as_a_whole(scene: Scene) -> None:
    await scene.put(*(event(n) for n in range(20)), partition=0)
    async with Subscriber(scene.subscription(fetch=8)) as events:
        batches = events.batches()
        async with asyncio.timeout(30):
            sizes = [len(await anext(batches)) for _ in range(2)]
    assert sizes == [8, 8]
    assert await scene.committed() == 8


async def test_a_fact_that_comes_twice_is_handed_out_once(scene: Scene) -> None:
    twice = [event(n) for n in range(10)] * 2
    await scene.put(*twice, event(99), partition=0)
    async with Subscriber(scene.subscription(fetch=4)) as one_by_one:
        found = await drain(one_by_one, lambda: one_by_one.counts.handed_out == 11)
    assert [e.id for e in found] == [event(n).id for n in (*range(10), 99)]
    assert one_by_one.counts.duplicates == 10
    assert await scene.committed() == 21
    scene.group += "-again"
    async with Subscriber(scene.subscription(fetch=500)) as whole:
        async with asyncio.timeout(30):
            batch = await anext(whole.batches())
    assert [e.id for e in batch] == [e.id for e in found]


async def test_the_window_is_bounded(scene: Scene) -> None:
    await scene.put(*(event(n) for n in range(100)), event(0), event(99), partition=0)
    async with Subscriber(scene.subscription(window=10)) as events:
        found = await drain(
            events, lambda: events.counts.handed_out + events.counts.duplicates == 102
        )
    assert Counter(e.id for e in found)[event(0).id] == 2
    assert Counter(e.id for e in found)[event(99).id] == 1


async def test_the_callers_own_store_knows_what_was_done_before_a_restart(scene: Scene) -> None:
    await scene.put(*(event(n) for n in range(10)), partition=0)
    store = {event(n).id for n in range(4)}

    async def seen(ids: Sequence[str]) -> Collection[str]:
        return store.intersection(ids)

    async with Subscriber(scene.subscription(), seen=seen) as events:
        found = await take(events, 6)
    assert [e.id for e in found] == [event(n).id for n in range(4, 10)]
    assert events.counts.duplicates == 4


async def test_a_store_that_fails_loses_nothing(scene: Scene) -> None:
    await scene.put(*(event(n) for n in range(3)), partition=0)
    answers: list[Exception | None] = [ConnectionError(), ConnectionError(), None]

    async def seen(_: Sequence[str]) -> Collection[str]:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return ()

    async with Subscriber(scene.subscription(), seen=seen) as events:
        async with asyncio.timeout(30):
            for _ in range(2):
                with pytest.raises(ConnectionError):
                    await anext(events)
        assert [e.id for e in await take(events, 3)] == [event(n).id for n in range(3)]


def with_changes(made: DeliveryEvent, **members: Any) -> bytes:
    return orjson.dumps({**orjson.loads(encode(made)), **members})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, Why.UNREADABLE),
        (b"", Why.UNREADABLE),
        (b"\xff\xfe", Why.UNREADABLE),
        (b"[1]", Why.UNREADABLE),
        (b'{"type": {"a": 1}, "data": {"tenant": ["x"]}}', Why.UNREADABLE),
        (b"[" * 5000, Why.UNREADABLE),
        (with_changes(event(1), id=7), Why.UNREADABLE),
        (with_changes(event(1), dataschema="urn:mailstreams:delivery-event:v2"), Why.UNREADABLE),
        (with_changes(event(1), type="mailstreams.email.forwarded"), Why.UNKNOWN_TYPE),
    ],
)
async def test_what_is_no_known_event_is_skipped_and_told_and_stops_nothing(
    scene: Scene, value: bytes | None, why: Why
) -> None:
    told: list[Skipped] = []

    async def skipped(one: Skipped) -> None:
        told.append(one)

    await scene.put(event(0), value, event(2), partition=1)
    settings = scene.subscription(tenants={"shop"})
    async with Subscriber(settings, skipped=skipped) as events:
        found = await drain(events, lambda: events.counts.handed_out == 2)
    assert [e.id for e in found] == [event(0).id, event(2).id]
    (one,) = told
    assert (one.why, one.partition, one.offset, one.value) == (why, 1, 1, value)
    assert (one.event is not None) == (why is Why.UNKNOWN_TYPE)
    assert events.counts.unreadable + events.counts.unknown_types == 1
    assert await scene.committed() == 3


async def test_a_new_reason_reads_as_other(scene: Scene) -> None:
    bounce = Bounce(type=BounceType.PERMANENT, reason=BounceReason.DNS)
    value = encode(event(1, EventType.BOUNCED, bounce=bounce)).replace(b'"dns"', b'"greylisted"')
    await scene.put(value)
    async with Subscriber(scene.subscription()) as events:
        (found,) = await take(events, 1)
    assert found.bounce == Bounce(type=BounceType.PERMANENT, reason=BounceReason.OTHER)


async def test_types_and_tenants_that_are_not_wanted_pass_by_and_are_done(scene: Scene) -> None:
    await scene.put(
        event(0),
        event(1, EventType.OPENED),
        event(2, tenant="other"),
        event(3, tenant=None),
        with_changes(event(4), type="mailstreams.email.forwarded"),
        event(5, EventType.CLICKED),
        event(6, EventType.OPENED),
        partition=0,
    )
    settings = scene.subscription(types={EventType.DELIVERED, "clicked"}, tenants=["shop"])
    async with Subscriber(settings) as events:
        found = await drain(events, lambda: events.counts.not_wanted == 5)
    assert [e.id for e in found] == [event(0).id, event(5).id]
    assert await scene.committed() == 7


async def test_a_second_member_takes_over_and_no_event_is_lost(scene: Scene) -> None:
    """Members join, one crashes with an event in hand: each event is done by somebody, at least once."""
    await scene.put(*(event(n) for n in range(100)))
    fed = 100
    done: Counter[str] = Counter()
    settings = scene.subscription(commit_every=20, fetch=20)

    async def member(name: str, crash_after: int | None = None) -> None:
        handled = 0
        async with Subscriber(settings) as events:
            async for one in events:
                await asyncio.sleep(0.002)
                if handled == crash_after:
                    raise ZeroDivisionError(name)
                handled += 1
                done[one.id] += 1

    async with asyncio.timeout(150):
        first = asyncio.create_task(member("first"))
        await eventually(lambda: len(done) >= 50, within_s=60)
        crashing = asyncio.create_task(member("crashing", crash_after=40))
        third = asyncio.create_task(member("third"))
        while not crashing.done():  # whoever joins finds work, however late it joins
            await scene.put(*(event(n) for n in range(fed, fed + 20)))
            fed += 20
            await asyncio.sleep(0.05)
        with pytest.raises(ZeroDivisionError):
            await crashing
        await eventually(lambda: len(done) == fed, within_s=60)
        for task in (first, third):
            task.cancel()
        await asyncio.gather(first, third, return_exceptions=True)
    assert done.keys() == {event(n).id for n in range(fed)}
    again = sum(done.values()) - fed
    assert again <= 10 * 20, f"{again} events came again"


CHILD = """
import asyncio, sys
from streams.subscribers import Subscriber, Subscription

async def main(servers, group, topic):
    settings = Subscription(
        bootstrap_servers=servers, group=group, topic=topic, commit_every=50, fetch=30,
        options={"session_timeout_ms": 6000})
    async with Subscriber(settings) as events:
        async for event in events:
            await asyncio.sleep(0.001)
            print(event.id, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_process_killed_again_and_again_loses_nothing_and_repeats_little(
    scene: Scene,
) -> None:
    sent = [event(n) for n in range(600)]
    await scene.put(*sent)
    printed: Counter[str] = Counter()
    for life in range(3):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CHILD),
            *(scene.bootstrap_servers, scene.group, scene.topic),
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(40):
            for line in range(600):
                printed[(await process.stdout.readline()).decode().strip()] += 1
                if len(printed) == 600 or (life < 2 and line == 170):
                    break
        process.kill()
        printed.update((await process.stdout.read()).decode().split())
        await process.wait()
    assert printed.keys() == {one.id for one in sent}
    # Up to 50 events not committed and one in hand at each kill.
    assert sum(printed.values()) - 600 <= 2 * 51


async def test_misuse_is_refused(scene: Scene) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await anext(Subscriber(scene.subscription()))
    async with Subscriber(scene.subscription()) as events:
        asking = asyncio.create_task(take(events, 1))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one task"):
            await anext(events)
        with pytest.raises(RuntimeError, match="already"):
            await events.__aenter__()
        await scene.put(event(1))
        assert len(await asking) == 1
    with pytest.raises(RuntimeError, match="async with"):
        await anext(events)
    missing = Subscription(
        bootstrap_servers=scene.bootstrap_servers, group=scene.group, topic="missing"
    )
    with pytest.raises(LookupError, match="missing"):
        await Subscriber(missing).__aenter__()


def test_options_that_would_break_the_promises_are_refused() -> None:
    with pytest.raises(ValueError, match="enable_auto_commit"):
        Subscription(
            bootstrap_servers="localhost:9092", group="g", options={"enable_auto_commit": True}
        )
    with pytest.raises(TypeError, match="types is a collection"):
        Subscription(bootstrap_servers="localhost:9092", group="g", types="bounced")
