"""Records of mail.suppressions as the relay writes them, for so many recipients that nobody has."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from aiokafka import AIOKafkaProducer

from streams.domain.heartbeats import heartbeat_keys
from streams.domain.partitioner import positive_hashes

_VALUE: Final = (
    b'{"suppressions": [{"lane": "*", "reason": "hard-bounce", "tenant": "*", "created": "2026-01-01T00:%02d:%02d.000000Z", '
    b'"evidence_id": "%s", "rule_version": 1}]}'
)
_KIND: Final = ("eventType", b"suppressions")

Record = tuple[bytes, bytes, bytes]


def records(count: int, *, seed: int = 1) -> Iterator[Record]:
    """Key, value and sequence of each."""
    drawn = random.Random(seed)  # noqa: S311 the same recipients every time
    for n in range(count):
        key = drawn.randbytes(16).hex().encode()
        yield key, _VALUE % (n // 60 % 60, n % 60, key), b"%d" % (n + 1)


async def produce(bootstrap_servers: str, topic: str, count: int, *, partitions: int) -> None:
    """Into the topic, each where its key belongs, in batches as the relay makes them."""
    # The leaders of a topic that was just made are found by trying, which aiokafka tells each time.
    logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", max_batch_size=128 * 1024
    )
    await producer.start()
    try:
        source = records(count)
        while page := list(islice(source, 20_000)):
            await _send(producer, topic, page, partitions)
        await producer.flush()
    finally:
        await producer.stop()


async def _send(
    producer: AIOKafkaProducer, topic: str, page: Sequence[Record], partitions: int
) -> None:
    lanes: list[list[Record]] = [[] for _ in range(partitions)]
    for record, hashed in zip(page, positive_hashes([key for key, _, _ in page]), strict=True):
        lanes[hashed % partitions].append(record)
    for number, lane in enumerate(lanes):
        waiting = deque(lane)
        while waiting:
            batch = producer.create_batch()
            while waiting:
                key, value, sequence = waiting[0]
                headers = [("id", key), _KIND, ("seq", sequence)]
                if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
                    break
                waiting.popleft()
            await producer.send_batch(batch, topic, partition=number)


async def beat(bootstrap_servers: str, topic: str, text: str, *, partitions: int) -> None:
    """A heartbeat into each partition."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    await producer.start()
    try:
        await asyncio.gather(
            *(
                producer.send_and_wait(
                    topic, b'{"heartbeat": "%s"}' % text.encode(), key=key.encode(), partition=n
                )
                for n, key in enumerate(heartbeat_keys(partitions))
            )
        )
    finally:
        await producer.stop()
