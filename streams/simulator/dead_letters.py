"""What SNS has given up, and the queues that it goes to."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from streams.simulator.clock import iso_milliseconds
from streams.simulator.sns_envelopes import SnsMessage
from streams.simulator.sns_topic import Subscription
from streams.simulator.sqs_queue import Queues


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A notification that SNS has given up; lost unless it is `queued` in its dead-letter queue."""

    queue: str | None
    queued: bool
    subscription_arn: str
    message: SnsMessage
    envelope: dict[str, str]
    tries: int
    error: str
    at: float

    def as_json(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "queued": self.queued,
            "subscription_arn": self.subscription_arn,
            "sns_message_id": self.message.message_id,
            "tries": self.tries,
            "error": self.error,
            "at": iso_milliseconds(self.at),
            "body": self.envelope,
        }


class DeadLetters:
    """Every dead letter of the run, queued or lost."""

    def __init__(self, queues: Queues) -> None:
        self.letters: list[DeadLetter] = []
        self._queues = queues

    def __len__(self) -> int:
        return len(self.letters)

    def add(
        self,
        message: SnsMessage,
        subscription: Subscription,
        *,
        envelope: dict[str, str],
        body: bytes,
        tries: int,
        error: str,
    ) -> None:
        """Keep it, and put `body` into the queue of the subscription's RedrivePolicy."""
        arn = subscription.attributes.dead_letter_queue
        subscription.dead += 1
        self.letters.append(
            DeadLetter(
                queue=arn,
                queued=arn is not None and enqueue(self._queues, arn, body),
                subscription_arn=subscription.arn,
                message=message,
                envelope=envelope,
                tries=tries,
                error=error,
                at=time.time(),
            )
        )


def enqueue(queues: Queues, arn: str, body: bytes) -> bool:
    """Whether the queue is there to take it."""
    queue = queues.find(arn)
    if queue is None:
        return False
    queue.put(body.decode(), now=asyncio.get_running_loop().time(), at=time.time())
    return True
