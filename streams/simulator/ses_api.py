"""SES v2 calls but sending: signed, limited, and answered by the operation of their path."""

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from streams.simulator import rest_answers
from streams.simulator.account import CallLimit
from streams.simulator.members import Members, read_json
from streams.simulator.refusals import RefusedError, bad_request, unknown_operation
from streams.simulator.requests import read_body, signed_request
from streams.simulator.sigv4 import SignatureVerifier, ses_scope

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SesCall:
    """An authenticated call."""

    request: web.Request
    members: Members
    """Of the body."""

    def path(self, name: str) -> str:
        """A part of the path, decoded."""
        return self.request.match_info[name]


@dataclass(frozen=True, slots=True)
class Operation:
    """What answers a method on a path; it raises what it refuses."""

    method: str
    path: str
    perform: Callable[[SesCall], Members]


class SesApi:
    """Routes of operations, each call authenticated and counted against the limit."""

    def __init__(
        self,
        *,
        operations: Sequence[Operation],
        verifier: SignatureVerifier,
        region: str,
        limit: CallLimit,
    ) -> None:
        self._operations = operations
        self._verifier = verifier
        self._scope = ses_scope(region)
        self._limit = limit

    def routes(self) -> list[web.AbstractRouteDef]:
        """The last one refuses what nobody knows; paths of sending must have been added before."""
        return [
            *(
                web.route(operation.method, operation.path, self._handler(operation.perform))
                for operation in self._operations
            ),
            web.route("*", "/v2/{tail:.*}", self._handler(_unknown)),
        ]

    def _handler(self, perform: Callable[[SesCall], Members]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                body = await read_body(request)
                self._verifier.verify(signed_request(request, body), self._scope, time.time())
                self._limit.admit(time.monotonic())
                return rest_answers.success(
                    perform(SesCall(request=request, members=read_json(body)))
                )
            except RefusedError as error:
                return rest_answers.refusal(error)

        return handle


def page(call: SesCall, name: str, items: Sequence[Any]) -> Members:
    """The part of `items` that PageSize and NextToken ask for."""
    query = call.request.query
    first, size = _offset(query.get("NextToken")), _page_size(query.get("PageSize"))
    shown: Members = {name: list(items[first : first + size])}
    if first + size < len(items):
        shown["NextToken"] = base64.urlsafe_b64encode(str(first + size).encode()).decode()
    return shown


def _unknown(call: SesCall) -> Members:
    raise unknown_operation(f"{call.request.method} {call.request.path}")


def _page_size(text: str | None) -> int:
    if text is None:
        return MAX_PAGE
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PAGE:
        raise bad_request(f"PageSize must be from 1 to {MAX_PAGE}.")
    return int(text)


def _offset(token: str | None) -> int:
    if token is None:
        return 0
    try:
        return max(0, int(base64.urlsafe_b64decode(token.encode()).decode()))
    except (binascii.Error, ValueError) as error:
        raise RefusedError(
            code="InvalidNextTokenException", status=400, message="NextToken is not valid."
        ) from error
