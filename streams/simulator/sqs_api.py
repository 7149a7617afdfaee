"""The JSON protocol of SQS: signed calls, named by X-Amz-Target, answered in JSON."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from streams.simulator.identifiers import random_uuid
from streams.simulator.members import Members, read_json, required_text, structure, text, texts
from streams.simulator.refusals import RefusedError
from streams.simulator.requests import read_body, signed_request
from streams.simulator.sigv4 import Scope, SignatureVerifier, sqs_scope
from streams.simulator.sqs_attributes import READABLE, QueueAttributes, changed
from streams.simulator.sqs_errors import (
    missing_parameter,
    no_such_queue,
    query_code,
    sqs_error,
)
from streams.simulator.sqs_messages import SqsMessages
from streams.simulator.sqs_queue import Queue, Queues

TARGET_PREFIX = "AmazonSQS."
_JSON = "application/x-amz-json-1.0"
_PURGE_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The members of a call, and where the caller reached the simulator."""

    members: Members
    url: str


class SqsApi:
    """Answers actions on queues, and hands those on messages to `SqsMessages`."""

    def __init__(
        self, *, queues: Queues, account_id: str, region: str, verifier: SignatureVerifier
    ) -> None:
        self._queues = queues
        self._account_id = account_id
        self._verifier = verifier
        self._scope: Scope = sqs_scope(region)
        self._purged_at: dict[str, float] = {}
        self._messages = SqsMessages(queues)
        self._actions: dict[str, Callable[[_Call], Members]] = {
            "CreateQueue": self._create,
            "GetQueueUrl": self._get_url,
            "ListQueues": self._list,
            "DeleteQueue": self._delete,
            "GetQueueAttributes": self._get_attributes,
            "SetQueueAttributes": self._set_attributes,
            "PurgeQueue": self._purge,
        }

    def wants(self, request: web.Request) -> bool:
        """SQS shares the root path with SNS; its calls name their target in a header."""
        return request.headers.get("X-Amz-Target", "").startswith(TARGET_PREFIX)

    async def handle(self, request: web.Request) -> web.Response:
        try:
            body = await read_body(request)
            self._verifier.verify(signed_request(request, body), self._scope, time.time())
            call = _Call(members=read_json(body), url=f"{request.scheme}://{request.host}")
            action = request.headers.get("X-Amz-Target", "").removeprefix(TARGET_PREFIX)
            return _answer(200, await self._perform(action, call))
        except RefusedError as error:
            return _refusal(error)

    async def _perform(self, action: str, call: _Call) -> Members:
        change = self._actions.get(action)
        if change is not None:
            return change(call)
        perform = self._messages.actions.get(action)
        if perform is None:
            raise sqs_error("UnknownOperationException", f"{action} is not simulated.", 404)
        result = perform(self._queue(call), call.members)
        return await result if isinstance(result, Awaitable) else result

    def _create(self, call: _Call) -> Members:
        name = _text(call.members, "QueueName")
        attributes = changed(QueueAttributes(), structure(call.members, "Attributes") or {})
        return {"QueueUrl": self._url(self._queues.create(name, attributes, time.time()), call)}

    def _get_url(self, call: _Call) -> Members:
        owner = call.members.get("QueueOwnerAWSAccountId", self._account_id)
        if owner != self._account_id:
            raise no_such_queue()
        return {"QueueUrl": self._url(self._queues.named(_text(call.members, "QueueName")), call)}

    def _list(self, call: _Call) -> Members:
        prefix = text(call.members, "QueueNamePrefix") or ""
        urls = [self._url(queue, call) for queue in self._queues if queue.name.startswith(prefix)]
        return {"QueueUrls": urls} if urls else {}

    def _delete(self, call: _Call) -> Members:
        self._queues.delete(self._queue(call).name)
        return {}

    def _get_attributes(self, call: _Call) -> Members:
        queue = self._queue(call)
        wanted = texts(call.members, "AttributeNames")
        for name in wanted:
            if name != "All" and name not in READABLE:
                raise sqs_error("InvalidAttributeName", f"Unknown Attribute {name}.")
        counts = queue.counts(asyncio.get_running_loop().time())
        values = {
            **queue.attributes.as_json(),
            "ApproximateNumberOfMessages": str(counts["visible"]),
            "ApproximateNumberOfMessagesNotVisible": str(counts["in_flight"]),
            "ApproximateNumberOfMessagesDelayed": str(counts["delayed"]),
            "CreatedTimestamp": str(int(queue.created_at)),
            "LastModifiedTimestamp": str(int(queue.modified_at)),
            "QueueArn": queue.arn,
        }
        shown = {k: v for k, v in values.items() if "All" in wanted or k in wanted}
        return {"Attributes": shown} if shown else {}

    def _set_attributes(self, call: _Call) -> Members:
        queue = self._queue(call)
        queue.attributes = changed(queue.attributes, structure(call.members, "Attributes") or {})
        queue.modified_at = time.time()
        return {}

    def _purge(self, call: _Call) -> Members:
        queue, now = self._queue(call), time.monotonic()
        if now < self._purged_at.get(queue.arn, float("-inf")) + _PURGE_INTERVAL_S:
            raise sqs_error(
                "PurgeQueueInProgress",
                f"Only one PurgeQueue operation on {queue.name} is allowed every 60 seconds.",
            )
        self._purged_at[queue.arn] = now
        queue.purge()
        return {}

    def _queue(self, call: _Call) -> Queue:
        """The queue of a QueueUrl; whatever host it names, the account and the name decide."""
        account, _, name = _text(call.members, "QueueUrl").rpartition("/")
        if account.rpartition("/")[2] != self._account_id:
            raise no_such_queue()
        return self._queues.named(name)

    def _url(self, queue: Queue, call: _Call) -> str:
        return f"{call.url}/{self._account_id}/{queue.name}"


def _text(members: Members, name: str) -> str:
    if not members.get(name):
        raise missing_parameter(name)
    return required_text(members, name)


def _answer(status: int, document: dict[str, Any]) -> web.Response:
    headers = {"x-amzn-RequestId": random_uuid()}
    return web.Response(
        status=status, body=orjson.dumps(document), content_type=_JSON, headers=headers
    )


def _refusal(error: RefusedError) -> web.Response:
    document = {"__type": f"com.amazonaws.sqs#{error.code}", "message": error.message}
    answer = _answer(error.status, document)
    answer.headers["x-amzn-query-error"] = f"{query_code(error.code)};Sender"
    return answer
