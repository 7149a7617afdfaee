"""Kafka through aiokafka: what every client of ours shares, and the topics."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    for_code,
)

from streams.adapters.kafka_connection import tell_ended_connections
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.records import Record
from streams.domain.topics import Topics
from streams.runtime import metrics

log = logging.getLogger(__name__)

_GIVEN_UP_S: Final = 2.0
# What brokers that are up and take no records lead to; a commit of offsets is a record too.
_TAKES_NOTHING: Final = (
    TimeoutError,
    RequestTimedOutError,
    KafkaTimeoutError,
    NotEnoughReplicasError,
    NotEnoughReplicasAfterAppendError,
    GroupCoordinatorNotAvailableError,
    KafkaStorageError,
)


def tell(error: BaseException, what: str = "Kafka") -> str:
    """The error in a sentence, with what to look at where waiting alone may not help."""
    if not isinstance(error, _TAKES_NOTHING):
        return f"{what}: {error!r}"
    return (
        f"{what}: {error!r}: see that the brokers are up, that as many are in sync as min.insync.replicas asks for, "
        "and that their disks have room"
    )


@asynccontextmanager
async def kafka_errors() -> AsyncIterator[None]:
    """Errors of aiokafka inside become Unavailable."""
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        raise Unavailable(tell(error)) from error


def client_options(bootstrap_servers: str, client_id: str) -> dict[str, Any]:
    """The options that every aiokafka client of ours is made with."""
    tell_ended_connections()
    return {"bootstrap_servers": bootstrap_servers, "client_id": client_id}


async def undisturbed(start: Coroutine[Any, Any, None]) -> None:
    """The start of a client of aiokafka. Cancelled, it would leave its first connection open: whoever gives up waits a little
    for its end, and closes the client then."""
    task = asyncio.create_task(start)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_GIVEN_UP_S)
        raise
    finally:
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def create_topics(
    bootstrap_servers: str, topics: Topics, *, partitions: int, replication_factor: int
) -> list[str]:
    """Makes the topics that are missing and returns their names; Misconfigured if one has another number of partitions.

    Unavailable when the broker cannot be asked, or is about to delete or to make one of them.
    """
    async with kafka_errors():
        admin = AIOKafkaAdminClient(**client_options(bootstrap_servers, "mailstreams-migrate"))
        try:
            await admin.start()
            wanted = topics.configurations()
            existing = set(await admin.list_topics())
            new = [
                _new_topic(name, config, partitions, replication_factor)
                for name, config in wanted.items()
                if name not in existing
            ]
            answer = await admin.create_topics(new) if new else None
            for topic, code, *detail in answer.topic_errors if answer is not None else ():
                if code not in (0, TopicAlreadyExistsError.errno):
                    raise for_code(code)(f"{topic}: {detail}")
            described = await admin.describe_topics([n for n in wanted if n in existing])
        except KafkaConnectionError as error:
            raise Unavailable(f"Kafka at {bootstrap_servers} cannot be reached") from error
        finally:
            await admin.close()
    for topic in described:
        found = len(topic["partitions"])
        if not found:
            raise Unavailable(f"topic {topic['topic']} is being deleted or not there yet")
        if not topic["topic"].endswith(".unreadable") and found != partitions:
            raise Misconfigured(
                f"topic {topic['topic']} has {found} partitions and MAILSTREAMS_PARTITIONS is {partitions}: "
                "every topic keyed by recipient needs the same number; set it, or make the topics anew"
            )
    return [topic.name for topic in new]


def _new_topic(
    name: str, config: dict[str, str], partitions: int, replication_factor: int
) -> NewTopic:
    """Records set aside are few and need no order: one partition."""
    topic = NewTopic(
        name, 1 if name.endswith(".unreadable") else partitions, 1, topic_configs=config
    )
    # -1 is the broker's default, which aiokafka's constructor takes for a mistake.
    topic.replication_factor = replication_factor
    return topic


def record_of(found: ConsumerRecord) -> Record:
    """A record of aiokafka as the stages see it."""
    return Record(
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
        key=found.key,
        value=found.value,
        headers=tuple(found.headers),
        timestamp_ms=found.timestamp,
    )


class LagGauge:
    """How many records of its partitions a consumer has not read yet, as a metric of its stage.

    A partition counts from the first record read of it; what is read but not committed counts as read.
    """

    def __init__(self, stage: str) -> None:
        self._gauge = metrics.CONSUMER_LAG.labels(stage=stage)
        self._next: dict[Any, int] = {}

    def read(self, consumer: AIOKafkaConsumer, found: Mapping[Any, Sequence[Any]]) -> None:
        """What one fetch gave, by partition."""
        mine = consumer.assignment()
        self._next.update({tp: records[-1].offset + 1 for tp, records in found.items() if records})
        self._next = {tp: position for tp, position in self._next.items() if tp in mine}
        ends = {tp: consumer.highwater(tp) or 0 for tp in self._next}
        self._gauge.set(sum(max(ends[tp] - position, 0) for tp, position in self._next.items()))
