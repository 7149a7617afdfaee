"""What waits for Kafka: topics, their partitions, and the batches of each partition in their order."""

import asyncio
from collections import deque
from typing import Any, Final

from streams.domain.acknowledgement import Outstanding
from streams.domain.feed_rows import Header
from streams.runtime import metrics

# Key, headers and lengths of a record, roughly.
_RECORD_OVERHEAD: Final = 200
# The kind of topic of which a record that comes late matters.
SUPPRESSIONS: Final = "suppressions"


class Batch:
    """Some records of one partition, not acknowledged yet."""

    __slots__ = ("append", "builder", "ids", "keys", "mark", "opened_at", "size")

    def __init__(self, builder: Any, mark: Outstanding, opened_at: float) -> None:
        self.builder = builder
        self.append = builder.append
        self.mark = mark
        self.opened_at = opened_at
        self.ids: list[bytes | None] = []
        # Of suppressions only.
        self.keys: list[bytes] = []
        self.size = 0

    def grown(self) -> int:
        """By how many bytes since the last call."""
        before, self.size = self.size, self.builder.size()
        return self.size - before

    def fuller_than(self, limit: int, payload: bytes | None) -> bool:
        """Whether one more record would pass the limit, roughly."""
        return bool(self.builder.size() + len(payload or b"") + _RECORD_OVERHEAD > limit)


class Partition:
    """The batches of one partition: one being filled, closed ones in their order, and those that are handed over."""

    __slots__ = ("closed", "number", "on_the_way", "open", "sending", "topic")

    def __init__(self, topic: "Topic", number: int) -> None:
        self.topic = topic
        self.number = number
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.on_the_way: deque[Batch] = deque()
        self.sending: asyncio.Task[None] | None = None

    @property
    def handed_over(self) -> int:
        return len(self.on_the_way)


class Topic:
    __slots__ = ("content_type", "keeps_keys", "limit", "name", "partitions", "records")

    def __init__(
        self, name: str, kind: str, partitions: int, limit: int, content_type: Header | None = None
    ) -> None:
        self.name = name
        self.partitions = [Partition(self, number) for number in range(partitions)]
        self.limit = limit
        self.content_type = content_type
        self.keeps_keys = kind == SUPPRESSIONS
        self.records = metrics.RELAY_RECORDS.labels(topic=kind)
