"""Answers in rest-json, with the headers that AWS always sends."""

from typing import Any

import orjson
from aiohttp import web

from streams.simulator.identifiers import random_uuid
from streams.simulator.refusals import RefusedError


def success(document: dict[str, Any]) -> web.Response:
    return _answer(200, orjson.dumps(document), {})


def broken(body: bytes) -> web.Response:
    """200 with a body that no service sends."""
    return _answer(200, body, {})


def refusal(error: RefusedError) -> web.Response:
    body = orjson.dumps({"message": error.message})
    return _answer(error.status, body, {"x-amzn-ErrorType": error.code})


def _answer(status: int, body: bytes, headers: dict[str, str]) -> web.Response:
    headers["x-amzn-RequestId"] = random_uuid()
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
