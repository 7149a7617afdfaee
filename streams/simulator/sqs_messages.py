"""The actions of SQS on the messages of one queue, alone and in batches."""

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from streams.simulator.members import Members, required_text, structure, structures, text, texts
from streams.simulator.refusals import RefusedError
from streams.simulator.sqs_attributes import MAX_MESSAGE_BYTES, MAX_VISIBILITY_S, MAX_WAIT_S
from streams.simulator.sqs_errors import missing_parameter, out_of_range, query_code, sqs_error
from streams.simulator.sqs_queue import Queue, QueuedMessage, Queues

MAX_BATCH = 10
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Action = Callable[[Queue, Members], Members | Awaitable[Members]]


class SqsMessages:
    """Send, receive, delete, change visibility; `actions` by name."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self.actions: dict[str, Action] = {
            "SendMessage": _send,
            "SendMessageBatch": _batch_of("SendMessage", _send),
            "ReceiveMessage": self._receive,
            "DeleteMessage": _delete,
            "DeleteMessageBatch": _batch_of("DeleteMessage", _delete),
            "ChangeMessageVisibility": _change_visibility,
            "ChangeMessageVisibilityBatch": _batch_of(
                "ChangeMessageVisibility", _change_visibility
            ),
        }

    async def _receive(self, queue: Queue, members: Members) -> Members:
        """Up to ten messages; with a wait, as soon as there is one."""
        attributes = queue.attributes
        most = _number(members, "MaxNumberOfMessages", 1, least=1, most=MAX_BATCH)
        visibility = _number(
            members, "VisibilityTimeout", attributes.visibility_s, most=MAX_VISIBILITY_S
        )
        wait = _number(members, "WaitTimeSeconds", attributes.wait_s, most=MAX_WAIT_S)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            found = queue.take(
                most,
                visibility_s=visibility,
                now=loop.time(),
                at=time.time(),
                dead=self._dead(queue),
            )
            if found or loop.time() >= until:
                break
            await queue.wait(until)
        system = {*texts(members, "AttributeNames"), *texts(members, "MessageSystemAttributeNames")}
        wanted = set(texts(members, "MessageAttributeNames"))
        return {"Messages": [_shown(item, system, wanted) for item in found]} if found else {}

    def _dead(self, source: Queue) -> Callable[[QueuedMessage], None]:
        """Moves what was received too often to the queue that the redrive policy names."""

        def move(message: QueuedMessage) -> None:
            redrive = source.attributes.redrive
            target = None if redrive is None else self._queues.find(redrive.target_arn)
            if target is not None:
                target.put(
                    message.body,
                    now=asyncio.get_running_loop().time(),
                    at=message.sent_at,
                    attributes=message.attributes,
                    source_arn=source.arn,
                )

        return move


def _send(queue: Queue, members: Members) -> Members:
    body = required_text(members, "MessageBody") if members.get("MessageBody") else ""
    if not body:
        raise missing_parameter("MessageBody")
    size = len(body.encode("utf-8", "surrogatepass"))
    if size > queue.attributes.max_bytes:
        raise sqs_error(
            "InvalidParameterValueException",
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{queue.attributes.max_bytes} bytes.",
        )
    if _FORBIDDEN.search(body):
        raise sqs_error(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are "
            "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF.",
        )
    delay = _number(members, "DelaySeconds", queue.attributes.delay_s, most=900)
    message = queue.put(
        body,
        now=asyncio.get_running_loop().time(),
        at=time.time(),
        delay_s=delay,
        attributes=structure(members, "MessageAttributes") or {},
    )
    return {"MessageId": message.message_id, "MD5OfMessageBody": _md5(body)}


def _delete(queue: Queue, members: Members) -> Members:
    queue.delete(_handle(members))
    return {}


def _change_visibility(queue: Queue, members: Members) -> Members:
    if members.get("VisibilityTimeout") is None:
        raise missing_parameter("VisibilityTimeout")
    seconds = _number(members, "VisibilityTimeout", 0, most=MAX_VISIBILITY_S)
    queue.change_visibility(_handle(members), seconds, asyncio.get_running_loop().time())
    return {}


def _batch_of(action: str, perform: Callable[[Queue, Members], Members]) -> Action:
    """The same for up to ten entries: what one entry does wrong spoils none of the others."""

    def batch(queue: Queue, members: Members) -> Members:
        entries = structures(members, "Entries")
        _check_batch(action, entries)
        successful, failed = [], []
        for entry in entries:
            try:
                successful.append({"Id": entry["Id"], **perform(queue, entry)})
            except RefusedError as error:
                failed.append(
                    {
                        "Id": entry["Id"],
                        "SenderFault": True,
                        "Code": query_code(error.code),
                        "Message": error.message,
                    }
                )
        return {"Successful": successful, "Failed": failed}

    return batch


def _check_batch(action: str, entries: list[Members]) -> None:
    if not entries:
        raise sqs_error(
            "EmptyBatchRequest",
            f"There should be at least one {action}BatchRequestEntry in the request.",
        )
    if len(entries) > MAX_BATCH:
        raise sqs_error(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MAX_BATCH}. You have sent {len(entries)}.",
        )
    names = [required_text(entry, "Id") for entry in entries]
    for number, name in enumerate(names):
        if not _ENTRY_ID.fullmatch(name):
            raise sqs_error(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if name in names[:number]:
            raise sqs_error("BatchEntryIdsNotDistinct", f"Id {name} repeated.")
    size = sum(
        len((text(entry, "MessageBody") or "").encode("utf-8", "replace")) for entry in entries
    )
    if size > MAX_MESSAGE_BYTES:
        raise sqs_error(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. "
            f"You have sent {size} bytes.",
        )


def _handle(members: Members) -> str:
    if not members.get("ReceiptHandle"):
        raise missing_parameter("ReceiptHandle")
    return required_text(members, "ReceiptHandle")


def _number(members: Members, name: str, default: int, *, most: int, least: int = 0) -> int:
    value = members.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise out_of_range(value, name, f"Must be >= {least} and <= {most}, if provided.")
    return value


def _shown(message: QueuedMessage, system: set[str], wanted: set[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "MessageId": message.message_id,
        "ReceiptHandle": message.receipt_handle,
        "MD5OfBody": _md5(message.body),
        "Body": message.body,
    }
    values = {
        "SentTimestamp": _milliseconds(message.sent_at),
        "ApproximateReceiveCount": str(message.receive_count),
        "ApproximateFirstReceiveTimestamp": _milliseconds(message.first_received_at or 0.0),
        "DeadLetterQueueSourceArn": message.source_arn,
    }
    attributes = {
        name: value
        for name, value in values.items()
        if value is not None and ("All" in system or name in system)
    }
    given = {
        name: value for name, value in message.attributes.items() if wanted & {"All", ".*", name}
    }
    return (
        shown
        | ({"Attributes": attributes} if attributes else {})
        | ({"MessageAttributes": given} if given else {})
    )


def _milliseconds(at: float) -> str:
    return str(int(at * 1000))


def _md5(body: str) -> str:
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
