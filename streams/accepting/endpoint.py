"""One request from its first line to its answer, within its time, whatever it holds."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import hdrs, web

from streams.accepting.calls import Answer, Call
from streams.accepting.keys import Keys
from streams.accepting.requests import (
    read_body,
    read_idempotency_key,
    read_query,
    read_traceparent,
)
from streams.accepting.routes import Route, Router
from streams.domain.api_problems import Kind, Problem, Refused, refused
from streams.domain.errors import Misconfigured, Overloaded, Unavailable
from streams.request_load import RequestLoad
from streams.runtime import metrics
from streams.runtime.connections import Connections
from streams.runtime.logs import places

log = logging.getLogger(__name__)

BODY_TIMEOUT_S: Final = 10.0
_JSON: Final = {"Content-Type": "application/json"}
_PROBLEM: Final = {"Content-Type": "application/problem+json"}
DOCUMENT: Final = "/openapi.json"


class Endpoint:
    """Every request gets one clear answer: 10 s for its body, answer_s for what is to be done."""

    def __init__(
        self,
        router: Router,
        keys: Keys,
        connections: Connections,
        *,
        largest: int,
        answer_s: float,
        document: bytes,
    ) -> None:
        self._router = router
        self._keys = keys
        self._connections = connections
        self._largest = largest
        self._answer_s = answer_s
        self._document = document
        self._load = RequestLoad()

    async def handle(self, request: web.BaseRequest) -> web.Response:
        started = time.perf_counter()
        name = "none"
        try:
            if request.path == DOCUMENT and request.method == hdrs.METH_GET:
                return web.Response(body=self._document, headers=_JSON)
            route, call_id = self._route(request)
            name = route.name
            answer = await self._within(request, route, call_id)
            response = _response(answer.status, answer.body, _JSON | dict(answer.headers))
            outcome = answer.outcome
        except Refused as refusal:
            response, outcome = _refusal(refusal.problem), str(refusal.problem.kind)
        finally:
            self._connections.done(request.protocol)
        metrics.API_REQUESTS.labels(route=name, outcome=outcome).inc()
        metrics.API_ANSWER_SECONDS.labels(route=name).observe(time.perf_counter() - started)
        if not request.content.is_eof():
            response.force_close()
        return response

    def _route(self, request: web.BaseRequest) -> tuple[Route, Any]:
        methods, found_id = self._router.find(request.path)
        allowed = ", ".join(sorted(methods)) if request.path != DOCUMENT else hdrs.METH_GET
        if not allowed:
            raise refused(Kind.NOT_FOUND, f"there is no such address: see {DOCUMENT}")
        route = methods.get(request.method)
        if route is None:
            detail = f"this address takes {allowed}"
            raise refused(Kind.METHOD_NOT_ALLOWED, detail, headers={hdrs.ALLOW: allowed})
        return route, found_id

    async def _within(self, request: web.BaseRequest, route: Route, call_id: Any) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S + self._answer_s) as deadline:
                with self._load.share() as share:
                    key = await self._keys.authorize(
                        request.headers.get(hdrs.AUTHORIZATION), route.scope
                    )
                    query = read_query(request, route.query)
                    keyed = read_idempotency_key(request.headers) if route.keyed else None
                    deadline.reschedule(loop.time() + BODY_TIMEOUT_S)
                    body, size = await read_body(
                        request,
                        route,
                        share,
                        largest=self._largest,
                        connections=self._connections,
                    )
                    deadline.reschedule(loop.time() + self._answer_s)
                    return await route.handler(
                        Call(
                            key=key,
                            body=body,
                            size=size,
                            query=query,
                            id=call_id,
                            idempotency_key=keyed,
                            traceparent=read_traceparent(request.headers),
                        )
                    )
        except Overloaded as error:
            raise _later(Kind.OVERLOADED, f"{error}: post it again") from error
        except Unavailable as error:
            raise _later(Kind.UNAVAILABLE, _UNKNOWN) from error
        except TimeoutError as error:
            raise _later(Kind.UNAVAILABLE, f"it was not done in time; {_UNKNOWN}") from error
        except Misconfigured as error:
            log.error(
                "PostgreSQL refuses us",
                extra={"action": "api.refused", "route": route.name, "error": str(error)},
            )
            raise _later(Kind.UNAVAILABLE, "nothing was done: the database refuses us") from error
        except Refused:
            raise
        except Exception as error:
            log.error(
                "request failed in a way nobody foresaw",
                extra={
                    "action": "api.failed",
                    "route": route.name,
                    "error": type(error).__name__,
                    "at": places(error),
                },
            )
            raise refused(Kind.FAILED, "it is logged; post it again later") from error


_UNKNOWN: Final = (
    "whether it was done is not known: ask again, and post e-mails again under the same Idempotency-Key or dedup_key, "
    "so that none is made twice"
)


def _later(kind: Kind, detail: str) -> Refused:
    return refused(kind, detail, retry_after_s=1 if kind is Kind.OVERLOADED else 5)


def _refusal(problem: Problem) -> web.Response:
    headers = _PROBLEM | dict(problem.headers)
    if problem.retry_after_s is not None:
        headers[hdrs.RETRY_AFTER] = str(problem.retry_after_s)
    return _response(problem.kind.status, problem.document(), headers)


def _response(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), headers=headers)
