"""Prints each bounce once. Nothing of mailstreams is needed, only aiokafka:

    python examples/plain_aiokafka.py --brokers localhost:9092 --group bounces

Ends at SIGINT or SIGTERM; started again it goes on where it was. Exit code 1 with one sentence if there is no broker or topic.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections import OrderedDict
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, KafkaError

BOUNCED = "mailstreams.email.bounced"
VERSION = "urn:mailstreams:delivery-event:v1"
REMEMBERED = 100_000


class Seen:
    """The latest ids. Delivery is at least once: after a crash or a rebalance some events come again, with the same id."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def is_new(self, event_id: str) -> bool:
        if event_id in self._ids:
            return False
        self._ids[event_id] = None
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)
        return True


def read(value: bytes | None) -> dict[str, Any] | None:
    """The event; None for what cannot be read, which must not stop the others. New members and types are no surprise."""
    try:
        event = json.loads(value or b"")
        if event["dataschema"] != VERSION:
            raise ValueError("another major version")
        return {"id": event["id"], "type": event["type"], "time": event["time"], **event["data"]}
    except (ValueError, TypeError, KeyError) as error:
        print(f"skipped what is no event: {type(error).__name__}", file=sys.stderr)
        return None


def handle(event: dict[str, Any]) -> None:
    """Yours. The address is not in the event: look the message up by outbox_id, the recipient by recipient_key."""
    bounce = event["bounce"]
    print(
        event["time"],
        event["tenant"],
        event["outbox_id"],
        event["recipient_key"],
        bounce["type"],
        bounce["reason"],
        flush=True,
    )


async def follow(brokers: str, group: str, topic: str) -> None:
    stopping = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stopping.set)
    seen = Seen()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=brokers,
        group_id=group,
        enable_auto_commit=False,  # it would commit what is not handled yet
        auto_offset_reset="earliest",  # a new group begins with the oldest event: the topic keeps 30 days
        heartbeat_interval_ms=1000,
    )
    try:
        await begin(consumer, brokers, topic)
        while not stopping.is_set():
            batch = await consumer.getmany(timeout_ms=500, max_records=500)
            for records in batch.values():
                for record in records:
                    event = read(record.value)
                    if event is not None and event["type"] == BOUNCED and seen.is_new(event["id"]):
                        handle(event)
            if batch:
                await commit(consumer)
    finally:
        await consumer.stop()


async def begin(consumer: AIOKafkaConsumer, brokers: str, topic: str) -> None:
    """A topic that is not there is told at once; a subscription would ask for it again and again."""
    log = logging.getLogger("aiokafka")
    log.setLevel(logging.CRITICAL)  # the sentence below is enough
    try:
        await consumer.start()
        topics = await consumer.topics()
    except (KafkaError, OSError, ValueError) as error:
        sys.exit(f"no broker can be reached at {brokers}: {type(error).__name__}")
    if topic not in topics:
        sys.exit(f"there is no topic {topic} at {brokers}")
    log.setLevel(logging.NOTSET)
    consumer.subscribe([topic])


async def commit(consumer: AIOKafkaConsumer) -> None:
    """Only now is the batch done. If the group has rebalanced meanwhile, the new owner reads it again."""
    try:
        await consumer.commit()
    except CommitFailedError:
        print("the positions belong to another member now", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", default="localhost:9092")
    parser.add_argument("--group", default="example-bounces")
    parser.add_argument("--topic", default="mail.delivery-events")
    given = parser.parse_args()
    asyncio.run(follow(given.brokers, given.group, given.topic))


if __name__ == "__main__":
    main()
