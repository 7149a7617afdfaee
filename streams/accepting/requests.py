"""Reads a request, within its bounds, into what handlers are given."""

import re
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import hdrs, web
from pydantic import BaseModel, ValidationError

from streams.accepting.routes import Route
from streams.domain.api_bodies import read_json, unwritable
from streams.domain.api_email import faults_of
from streams.domain.api_problems import Fault, Kind, Problem, Refused, invalid, refused
from streams.domain.errors import Overloaded
from streams.request_load import RequestShare
from streams.runtime.connections import Connections

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_KEY: Final = re.compile(r"[!-~]{1,255}", re.ASCII)
_TRACEPARENT: Final = re.compile(
    r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)


def read_query(request: web.BaseRequest, model: type[BaseModel]) -> BaseModel:
    """The query as this; refuses it with all its faults."""
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name in given:
            raise Refused(invalid([Fault(f"?{name}", "it stands twice: give it once")]))
        given[name] = value
    if (wrong := unwritable(given)) is not None:
        raise refused(Kind.MALFORMED, f"the query has {wrong}")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = faults_of(error)
        raise Refused(invalid([Fault(f"?{f.pointer[1:]}", f.detail) for f in faults])) from None


def read_idempotency_key(headers: Mapping[str, str]) -> str | None:
    """As given; None without one."""
    key = headers.get(IDEMPOTENCY_KEY)
    if key is not None and not _KEY.fullmatch(key):
        raise refused(
            Kind.MALFORMED,
            f"{IDEMPOTENCY_KEY} has to be 1 to 255 visible ASCII characters: correct it",
        )
    return key


def read_traceparent(headers: Mapping[str, str]) -> str | None:
    """What is none is ignored, as W3C Trace Context asks."""
    found = headers.get("traceparent", "")
    return found if _TRACEPARENT.fullmatch(found) else None


async def read_body(
    request: web.BaseRequest,
    route: Route,
    share: RequestShare,
    *,
    largest: int,
    connections: Connections,
) -> tuple[Any, int]:
    """The JSON value of the body and its bytes; an empty object without a body where there need be none."""
    if route.body == "none" or (route.body == "optional" and not request.body_exists):
        return {}, 0
    _check_head(request, largest=largest)
    if hdrs.EXPECT in request.headers:
        _continue(request)
    connections.reading(request.protocol)
    body = await _read(request, share, largest=largest)
    connections.working(request.protocol)
    if route.body == "optional" and not body:
        return {}, 0
    return read_json(body), len(body)


def _check_head(request: web.BaseRequest, *, largest: int) -> None:
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower()
    if request.content_type != "application/json" or encoding != "identity":
        raise refused(
            Kind.UNSUPPORTED_MEDIA_TYPE,
            "post JSON in UTF-8, not packed, with the header Content-Type: application/json",
        )
    if (request.charset or "utf-8").lower().replace("-", "") != "utf8":
        raise refused(Kind.UNSUPPORTED_MEDIA_TYPE, "write the JSON in UTF-8")
    if (request.content_length or 0) > largest:
        raise Refused(_too_large(largest))


async def _read(request: web.BaseRequest, share: RequestShare, *, largest: int) -> bytes:
    chunks: list[bytes] = []
    try:
        async for chunk in request.content.iter_any():
            chunks.append(chunk)
            if share.grown(len(chunk)) > largest:
                raise Refused(_too_large(largest))
            if not share.fits():
                raise Overloaded("the bodies of all requests fill the memory that they may have")
    except (web.RequestPayloadError, ConnectionError):
        raise refused(Kind.MALFORMED, "the body is broken off: send all of it") from None
    return b"".join(chunks)


def _too_large(largest: int) -> Problem:
    return Problem(
        kind=Kind.TOO_LARGE, detail=f"a body has at most {largest} bytes: split it, or shorten it"
    )


def _continue(request: web.BaseRequest) -> None:
    """Lets the client go on that waits for leave to send the body."""
    if request.headers[hdrs.EXPECT].lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
