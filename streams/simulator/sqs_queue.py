"""Queues of the simulated SQS: at least once, in no promised order, invisible while received."""

import asyncio
import base64
import binascii
import contextlib
import heapq
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from streams.simulator.identifiers import random_uuid
from streams.simulator.regions import partition
from streams.simulator.sqs_attributes import QueueAttributes
from streams.simulator.sqs_errors import (
    invalid_handle,
    invalid_value,
    no_such_queue,
    sqs_error,
)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


@dataclass(slots=True, kw_only=True)
class QueuedMessage:
    """One message; `visible_at` counts on the event loop's clock, the other times are epoch seconds."""

    message_id: str
    sequence: int
    body: str
    sent_at: float
    visible_at: float
    expires_at: float
    attributes: dict[str, Any] = field(default_factory=dict)
    receive_count: int = 0
    first_received_at: float | None = None
    source_arn: str | None = None
    """The queue that it was a dead letter of."""

    @property
    def receipt_handle(self) -> str:
        """The handle of the newest receipt: the older ones delete nothing any more."""
        text = f"{self.message_id} {self.receive_count}"
        return base64.urlsafe_b64encode(text.encode()).decode()


class Queue:
    """Messages of one queue; `now` is the event loop's time, `at` the epoch second."""

    def __init__(
        self, *, name: str, arn: str, attributes: QueueAttributes, created_at: float
    ) -> None:
        self.name = name
        self.arn = arn
        self.attributes = attributes
        self.created_at = self.modified_at = created_at
        self.sent = 0
        self.deleted = 0
        self._messages: dict[str, QueuedMessage] = {}
        self._due: list[tuple[float, int, str]] = []
        self._sequence = count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def put(
        self,
        body: str,
        *,
        now: float,
        at: float,
        delay_s: float | None = None,
        attributes: dict[str, Any] | None = None,
        source_arn: str | None = None,
    ) -> QueuedMessage:
        delay = self.attributes.delay_s if delay_s is None else delay_s
        message = QueuedMessage(
            message_id=random_uuid(),
            sequence=next(self._sequence),
            body=body,
            sent_at=at,
            visible_at=now + delay,
            expires_at=now + self.attributes.retention_s,
            attributes=attributes or {},
            source_arn=source_arn,
        )
        self._messages[message.message_id] = message
        self.sent += 1
        self._show(message)
        return message

    def take(
        self,
        most: int,
        *,
        visibility_s: float,
        now: float,
        at: float,
        dead: Callable[[QueuedMessage], None],
    ) -> list[QueuedMessage]:
        """Receive what is visible; a message that was received too often goes to `dead`."""
        taken: list[QueuedMessage] = []
        while len(taken) < most and self._due and self._due[0][0] <= now:
            visible_at, _, message_id = heapq.heappop(self._due)
            message = self._messages.get(message_id)
            if message is None or message.visible_at != visible_at:
                continue
            redrive = self.attributes.redrive
            if message.expires_at <= now:
                del self._messages[message_id]
            elif redrive is not None and message.receive_count >= redrive.most:
                del self._messages[message_id]
                dead(message)
            else:
                message.receive_count += 1
                message.first_received_at = message.first_received_at or at
                message.visible_at = now + visibility_s
                taken.append(message)
        for message in taken:
            heapq.heappush(self._due, (message.visible_at, message.sequence, message.message_id))
        return taken

    async def wait(self, until: float) -> None:
        """Wait until something may have become visible, or until that time."""
        self._changed.clear()
        due = min(until, self._due[0][0]) if self._due else until
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._changed.wait()

    def delete(self, handle: str) -> None:
        """An old receipt and a second deletion change nothing, as on SQS."""
        message = self._received(handle)
        if message is not None and message.receipt_handle == handle:
            del self._messages[message.message_id]
            self.deleted += 1

    def change_visibility(self, handle: str, seconds: float, now: float) -> None:
        message = self._received(handle)
        if message is None:
            raise invalid_value(
                f"Value {handle} for parameter ReceiptHandle is invalid. "
                "Reason: Message does not exist or is not available for visibility timeout change."
            )
        if message.receipt_handle != handle or message.visible_at <= now:
            raise sqs_error("MessageNotInflight", "The message referred to isn't in flight.")
        message.visible_at = now + seconds
        self._show(message)

    def purge(self) -> None:
        self._messages.clear()
        self._due.clear()

    def counts(self, now: float) -> dict[str, int]:
        """Visible, received and not deleted, and delayed messages."""
        hidden = [message for message in self._messages.values() if message.visible_at > now]
        in_flight = sum(message.receive_count > 0 for message in hidden)
        return {
            "visible": len(self._messages) - len(hidden),
            "in_flight": in_flight,
            "delayed": len(hidden) - in_flight,
        }

    def bodies(self) -> Iterator[str]:
        """What is in the queue now, for a look: nothing is received by it."""
        for message in self._messages.values():
            yield message.body

    def _show(self, message: QueuedMessage) -> None:
        heapq.heappush(self._due, (message.visible_at, message.sequence, message.message_id))
        self._changed.set()

    def _received(self, handle: str) -> QueuedMessage | None:
        """The message of a handle, None if it is gone; a handle that was never given is refused."""
        try:
            message_id, _, number = (
                base64.b64decode(handle.encode(), altchars=b"-_", validate=True)
                .decode()
                .partition(" ")
            )
        except (binascii.Error, UnicodeDecodeError) as error:
            raise invalid_handle() from error
        if len(message_id) != 36 or not number.isdecimal():
            raise invalid_handle()
        return self._messages.get(message_id)


class Queues:
    """The queues of the account and region, by name and by ARN."""

    def __init__(self, *, region: str, account_id: str) -> None:
        self._prefix = f"arn:{partition(region)}:sqs:{region}:{account_id}:"
        self._queues: dict[str, Queue] = {}

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def arn_of(self, name: str) -> str:
        return self._prefix + name

    def create(self, name: str, attributes: QueueAttributes, at: float) -> Queue:
        """The queue of a name; again with the same attributes: the one there is."""
        if not _NAME.fullmatch(name):
            raise invalid_value(
                "Can only include alphanumeric characters, hyphens, or underscores. "
                "1 to 80 in length"
            )
        queue = self._queues.get(name)
        if queue is None:
            queue = Queue(name=name, arn=self.arn_of(name), attributes=attributes, created_at=at)
            self._queues[name] = queue
        elif queue.attributes != attributes:
            raise sqs_error(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for an attribute.",
            )
        return queue

    def named(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            raise no_such_queue()
        return queue

    def find(self, arn: str) -> Queue | None:
        return self._queues.get(arn.removeprefix(self._prefix))

    def delete(self, name: str) -> None:
        self._queues.pop(self.named(name).name).purge()
