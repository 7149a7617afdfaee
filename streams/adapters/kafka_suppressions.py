"""The partitions of mail.suppressions that a sender follows, assigned by hand."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from streams.adapters.kafka import client_options, kafka_errors, undisturbed
from streams.adapters.kafka_log import read_columns
from streams.domain.errors import Unavailable
from streams.domain.suppressions import PartitionLost, Span, SuppressionPage

log = logging.getLogger(__name__)

_ANSWER_S: Final = 15.0
_STOP_S: Final = 5.0
_RETRY_S: Final = 0.1
_MADE_S: Final = 5.0
# Whatever a broker that has just come back says, it has had the time to learn better.
_CERTAIN_S: Final = 10.0
_PARTITION_BYTES: Final = 2 * 1024 * 1024
_FETCH_BYTES: Final = 16 * 1024 * 1024
# An end offset may stand behind records of an aborted transaction or its marker.
_READ_COMMITTED: Final = 1
_LATEST: Final = -1
_EARLIEST: Final = -2

Found = list[SuppressionPage | PartitionLost]


class KafkaSuppressions:
    """No group and no commits: who follows says where to begin. Unavailable means: follow() again."""

    def __init__(self, bootstrap_servers: str, topic: str, *, client_id: str) -> None:
        self._options = client_options(bootstrap_servers, client_id)
        self._topic = topic
        self._client: AIOKafkaClient | None = None
        self._positions: dict[int, int] = {}
        # Compaction leaves the first offset as it is; only deleted records move it.
        self._starts: dict[int, int] = {}
        self._fetches: dict[int, asyncio.Task[Found]] = {}
        # Since when a broker has said something of a partition that means that it is lost.
        self._doubtful: dict[int, float] = {}

    async def follow(self, positions: Mapping[int, int | None]) -> dict[int, Span]:
        """Reads these partitions from these positions on (None: the beginning); returns what each holds at this moment."""
        await self._end_fetches()
        self._positions = {}
        if not positions:
            await self.stop()
            return {}
        try:
            async with kafka_errors(), asyncio.timeout(_ANSWER_S):
                client = await self._connected()
                starts = await self._offsets(client, positions, _EARLIEST)
                ends = await self._offsets(client, positions, _LATEST)
        except BaseException:
            await self.stop()
            raise
        self._positions = {
            number: starts[number] if position is None else position
            for number, position in positions.items()
        }
        self._starts = starts
        return {number: Span(starts[number], ends[number]) for number in positions}

    def partitions(self) -> int | None:
        """How many partitions the topic has; None while that is not known."""
        if self._client is None:
            return None
        return len(self._client.cluster.partitions_for_topic(self._topic) or ()) or None

    async def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            client = AIOKafkaClient(
                **self._options,
                request_timeout_ms=int(_ANSWER_S * 1000),
                metadata_max_age_ms=10_000,
            )
            self._client = client
            await undisturbed(client.bootstrap())
            await client.set_topics([self._topic])
        return self._client

    async def _offsets(
        self, client: AIOKafkaClient, numbers: Mapping[int, object], which: int
    ) -> dict[int, int]:
        """The first or last offset of each; waits for leaders."""
        missing, deadline = set(numbers), time.monotonic() + _MADE_S
        offsets: dict[int, int] = {}
        while missing:
            for node, of_node in self._by_leader(client, missing).items():
                wanted = [(self._topic, [(number, which) for number in of_node])]
                answer = await client.send(node, OffsetRequest(-1, _READ_COMMITTED, wanted))
                for _, partitions in answer.topics:
                    offsets |= {
                        number: offset for number, code, _, offset in partitions if code == 0
                    }
            missing -= offsets.keys()
            if missing:
                await client.force_metadata_update()
                self._check_there(client, missing, patient=time.monotonic() < deadline)
                await asyncio.sleep(_RETRY_S)
        return offsets

    def _check_there(self, client: AIOKafkaClient, numbers: set[int], *, patient: bool) -> None:
        """A topic that was made a moment ago is not known to every broker."""
        there = client.cluster.partitions_for_topic(self._topic)
        if patient or (there is not None and numbers <= there):
            return
        if there is None:
            raise Unavailable(
                f'topic {self._topic} does not exist: "mailstreams migrate" makes it, and '
                '"mailstreams suppressions republish" fills it again if it was deleted'
            )
        raise Unavailable(
            f"topic {self._topic} has no partition {max(numbers)}: give all topics keyed by recipient the same number of "
            'partitions, and run "mailstreams suppressions republish"'
        )

    def _by_leader(self, client: AIOKafkaClient, numbers: set[int]) -> dict[int, list[int]]:
        leaders: dict[int, list[int]] = {}
        for number in sorted(numbers):
            node = client.cluster.leader_for_partition(TopicPartition(self._topic, number))
            if node is not None and node != -1:
                leaders.setdefault(node, []).append(number)
        return leaders

    async def fetch(self, *, timeout_s: float) -> Found:
        """What has come of all partitions; one that is lost is not read any more. Each broker is asked by itself, so that a slow
        one holds up its own partitions only."""
        client = self._client
        if client is None or not self._positions:
            await asyncio.sleep(timeout_s)
            return []
        for node, numbers in self._by_leader(client, set(self._positions)).items():
            if node not in self._fetches:
                self._fetches[node] = asyncio.create_task(
                    self._fetch(client, node, numbers, timeout_s)
                )
        if not self._fetches:
            await asyncio.sleep(_RETRY_S)
            await self._refreshed(client)
            return []
        done, _ = await asyncio.wait(
            self._fetches.values(),
            timeout=timeout_s + _ANSWER_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._fetches = {n: task for n, task in self._fetches.items() if task not in done}
        try:
            async with kafka_errors():
                found: Found = [one for task in done for one in task.result()]
        except Unavailable:
            await self.stop()
            raise
        for one in found:
            if isinstance(one, PartitionLost):
                self._positions.pop(one.partition, None)
            else:
                self._positions[one.partition] = one.position
        return found

    async def _refreshed(self, client: AIOKafkaClient) -> None:
        async with kafka_errors(), asyncio.timeout(_ANSWER_S):
            await client.force_metadata_update()

    async def _fetch(
        self, client: AIOKafkaClient, node: int, numbers: list[int], wait_s: float
    ) -> Found:
        positions = {number: self._positions[number] for number in numbers}
        wanted = [(number, position, _PARTITION_BYTES) for number, position in positions.items()]
        request = FetchRequest(
            int(wait_s * 1000), 1, _FETCH_BYTES, _READ_COMMITTED, [(self._topic, wanted)]
        )
        answer = await client.send(node, request)
        found: Found = []
        for _, partitions in answer.topics:
            for number, code, highwater, *rest in partitions:
                one = self._read(number, positions[number], code, highwater, rest)
                if one is not None:
                    found.append(one)
                await asyncio.sleep(0)
        if self._doubtful:
            await asyncio.sleep(_RETRY_S)
            await client.force_metadata_update()
        return found

    def _read(
        self, number: int, position: int, code: int, highwater: int, rest: list[Any]
    ) -> SuppressionPage | PartitionLost | None:
        error: type[KafkaError] = for_code(code)
        if error is OffsetOutOfRangeError:
            return PartitionLost(number, f"offset {position} is not there any more")
        if error is UnknownTopicOrPartitionError:
            return self._doubt(number, "the topic or the partition does not exist any more")
        if code != 0:
            self._doubtful.setdefault(number, float("inf"))
            return None
        if highwater < position:
            return self._doubt(number, f"its end went back to {highwater} from {position}")
        self._doubtful.pop(number, None)
        # Last stable offset, first offset, aborted transactions, and then what versions 11 and up put before the records.
        _, start, aborted, *_ = rest
        if start > self._starts[number]:
            return PartitionLost(number, f"its records before offset {start} were deleted")
        columns = read_columns(rest[-1] or b"", position, aborted)
        return None if columns.position == position else SuppressionPage(number, *columns)

    def _doubt(self, number: int, why: str) -> PartitionLost | None:
        now = time.monotonic()
        since = self._doubtful.get(number, now)
        self._doubtful[number] = min(since, now)
        if now - self._doubtful[number] < _CERTAIN_S:
            return None
        del self._doubtful[number]
        return PartitionLost(number, why)

    async def _end_fetches(self) -> None:
        fetches, self._fetches = self._fetches, {}
        for task in fetches.values():
            task.cancel()
        await asyncio.gather(*fetches.values(), return_exceptions=True)
        self._doubtful.clear()

    async def stop(self) -> None:
        await self._end_fetches()
        client, self._client = self._client, None
        if client is not None:
            try:
                await asyncio.wait_for(client.close(), _STOP_S)
            except (TimeoutError, OSError):
                log.warning(
                    "Kafka client did not close", extra={"action": "kafka.client_not_closed"}
                )
