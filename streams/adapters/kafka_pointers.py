"""The pointers of both lanes, read as a member of the senders' consumer group."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from streams.adapters.kafka import LagGauge, client_options, kafka_errors, record_of, undisturbed
from streams.adapters.kafka_connection import check_alive, close
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.records import Record, TopicPartition
from streams.domain.topics import Lane, Topics
from streams.ports.sender import Place

log = logging.getLogger(__name__)

# The group moved on: whoever owns the partitions now reads the records again, and the claim keeps their work from being
# repeated.
_MOVED_ON: Final = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
_STOP_S: Final = 5.0
_POSITION_S: Final = 1.0
_TOPICS_S: Final = 10.0
_TOPICS_POLL_S: Final = 0.1

OnChange = Callable[[frozenset[int]], Awaitable[None]]


class KafkaPointers:
    """A member of the group <prefix>sender. The range assignor gives both topics' partitions of one number to one member.

    Unavailable from any method means: stop() and start() again.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Topics,
        *,
        client_id: str,
        session_timeout_s: float = 10.0,
        max_poll_interval_s: float = 60.0,
        instance_id: str | None = None,
    ) -> None:
        """With an instance id the membership is static: see GroupInstance."""
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._session_timeout_ms = int(session_timeout_s * 1000)
        self._max_poll_interval_ms = int(max_poll_interval_s * 1000)
        self._group = f"{topics.prefix}sender"
        self._lanes = {topics.outbox(lane): lane for lane in Lane}
        self._instance = (
            None
            if instance_id is None
            else GroupInstance(bootstrap_servers, self._group, instance_id)
        )
        self._consumer: AIOKafkaConsumer | None = None
        self._lag = LagGauge("sender")

    async def start(self, *, on_revoked: OnChange, on_assigned: OnChange) -> None:
        """Joins the group. on_revoked is called before partitions are given up, on_assigned after they were given;
        both get all partition numbers, and neither may raise."""
        if self._consumer is not None:
            return
        instance = self._instance
        consumer = AIOKafkaConsumer(
            **client_options(self._bootstrap_servers, self._client_id),
            group_id=self._group,
            group_instance_id=None if instance is None else instance.id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(RangePartitionAssignor,),
            heartbeat_interval_ms=500,
            session_timeout_ms=self._session_timeout_ms,
            max_poll_interval_ms=self._max_poll_interval_ms,
            request_timeout_ms=15_000,
            isolation_level="read_committed",
        )
        try:
            async with kafka_errors():
                await undisturbed(consumer.start())
                await self._wait_for_topics(consumer)
                listener = _Listener(on_revoked, on_assigned, instance)
                consumer.subscribe(list(self._lanes), listener=listener)
        except BaseException:
            await close(consumer, _STOP_S)
            raise
        self._consumer = consumer

    async def _wait_for_topics(self, consumer: AIOKafkaConsumer) -> None:
        """Joined before a broker knows them, a group is given no partitions, and aiokafka may not notice that they come."""
        deadline = time.monotonic() + _TOPICS_S
        while missing := self._lanes.keys() - await consumer.topics():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f'topic {min(missing)} does not exist: run "mailstreams migrate" first'
                )
            await asyncio.sleep(_TOPICS_POLL_S)

    async def fetch(self, lanes: Collection[Lane], *, most: int, timeout_s: float) -> list[Record]:
        """Records of these lanes, those of each partition in order; none after the time-out. Of other lanes fetching pauses."""
        consumer = self._started()
        check_alive(consumer)
        self._pause_others(consumer, lanes)
        async with kafka_errors():
            try:
                async with asyncio.timeout(timeout_s + 1):
                    found = await consumer.getmany(
                        timeout_ms=int(timeout_s * 1000), max_records=most
                    )
            except TimeoutError:  # a rebalance is under way: nothing is given out until it ends
                return []
            except asyncio.CancelledError:
                self._check_instance()  # the coordination was ended by the listener
                raise
        self._lag.read(consumer, found)
        return [record_of(record) for records in found.values() for record in records]

    def _pause_others(self, consumer: AIOKafkaConsumer, lanes: Collection[Lane]) -> None:
        with suppress(IllegalStateError):  # a partition left between the two calls
            assigned, paused = consumer.assignment(), consumer.paused()
            closed = {tp for tp in assigned if self._lanes[tp.topic] not in lanes}
            consumer.pause(*(closed - paused))
            consumer.resume(*((assigned & paused) - closed))

    async def commit(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Commits those of partitions that are still ours; False if the group has moved on meanwhile."""
        consumer = self._started()
        mine = consumer.assignment()
        wanted = {KafkaPartition(*tp): offset for tp, offset in positions.items()}
        wanted = {tp: offset for tp, offset in wanted.items() if tp in mine}
        if not wanted:
            return False
        async with kafka_errors():
            try:
                async with asyncio.timeout(_STOP_S):
                    await consumer.commit(wanted)
            except _MOVED_ON as error:
                log.info(
                    "offsets were not committed, the group moved on",
                    extra={"action": "sender.commit_refused", "error": type(error).__name__},
                )
                return False
        return True

    async def places(self) -> list[Place]:
        """Where our partitions stand. Unavailable if Kafka does not answer, also where none is ours."""
        consumer = self._started()
        async with kafka_errors(), asyncio.timeout(_STOP_S):
            mine = consumer.assignment()
            asked = mine or {KafkaPartition(next(iter(self._lanes)), 0)}
            ends = await consumer.end_offsets(list(asked))
            places = []
            for tp in mine & consumer.assignment():
                with suppress(IllegalStateError, TimeoutError):
                    async with asyncio.timeout(_POSITION_S):
                        position = await consumer.position(tp)
                    lane = self._lanes[tp.topic]
                    places.append(Place(lane, TopicPartition(*tp), position, ends[tp]))
            return places

    def partitions(self) -> dict[str, int]:
        """How many partitions each lane's topic has, as far as that is known."""
        if self._consumer is None:
            return {}
        found = {name: self._consumer.partitions_for_topic(name) for name in self._lanes}
        return {name: len(partitions) for name, partitions in found.items() if partitions}

    async def stop(self) -> None:
        """Leaves the group, unless the membership is static. Idempotent."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer, _STOP_S)

    def _check_instance(self) -> None:
        if self._instance is not None and self._instance.taken_over:
            raise Misconfigured(
                f"another process is {self._instance.id} in the group {self._group}, so this one stops: give each sender a "
                "MAILSTREAMS_SENDER_INSTANCE_ID of its own, or let it be none"
            )

    def _started(self) -> AIOKafkaConsumer:
        self._check_instance()
        if self._consumer is None:
            raise Unavailable("Kafka: the consumer of pointers is not connected")
        return self._consumer


class GroupInstance:
    """A name in the group that survives restarts (KIP-345): who comes back under it within the session time-out gets its
    partitions at once, without a rebalance, and whoever still has it is out.

    aiokafka does not tell the two reasons apart for which a member is unknown: its session ran out, or somebody else has
    its name. The second would be a fight without an end. So the group is asked: the broker makes the id of a static member
    of its name and a UUID.
    """

    def __init__(self, bootstrap_servers: str, group: str, instance_id: str) -> None:
        self.id = instance_id
        self.taken_over = False
        self._bootstrap_servers = bootstrap_servers
        self._group = group
        self._member: str | None = None

    async def joined(self) -> None:
        """Remembers who we are."""
        with suppress(Unavailable):
            self._member = await self._holder()

    async def look(self) -> bool:
        """Whether somebody else has our name now. Kafka being away is no reason to think so."""
        if self._member is not None:
            with suppress(Unavailable):
                self.taken_over = await self._holder() not in (None, self._member)
        return self.taken_over

    async def _holder(self) -> str | None:
        admin = AIOKafkaAdminClient(
            **client_options(self._bootstrap_servers, "mailstreams-sender-instance"),
            request_timeout_ms=int(_STOP_S * 1000),
        )
        async with kafka_errors(), asyncio.timeout(_STOP_S):
            try:
                await undisturbed(admin.start())
                answers = await admin.describe_consumer_groups([self._group])
            finally:
                await admin.close()
        members = [m[0] for answer in answers for group in answer.groups for m in group[5]]
        ours = re.compile(re.escape(self.id) + "-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
        return next((member for member in members if ours.fullmatch(member)), None)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(
        self, on_revoked: OnChange, on_assigned: OnChange, instance: GroupInstance | None
    ) -> None:
        self._on_revoked = on_revoked
        self._on_assigned = on_assigned
        self._instance = instance

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        await self._on_revoked(_numbers(revoked))
        if self._instance is not None and await self._instance.look():
            # aiokafka would join again now, whatever this raises, and throw the other one out.
            task = asyncio.current_task()
            if task is not None:
                task.cancel()
            await asyncio.sleep(0)

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        if self._instance is not None:
            await self._instance.joined()
        await self._on_assigned(_numbers(assigned))


def _numbers(partitions: Iterable[KafkaPartition]) -> frozenset[int]:
    return frozenset(tp.partition for tp in partitions)
