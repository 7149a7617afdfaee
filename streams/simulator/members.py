"""Reading members of a rest-json request: a wrong type is a SerializationException."""

from typing import Any

import orjson

from streams.simulator.refusals import bad_request, not_serialisable

Members = dict[str, Any]


def read_json(body: bytes) -> Members:
    try:
        document = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise not_serialisable("Unable to parse the request body as JSON") from error
    if not isinstance(document, dict):
        raise not_serialisable("Start of structure expected at the top of the request body")
    return document


def text(members: Members, name: str) -> str | None:
    value = members.get(name)
    if value is None or isinstance(value, str):
        return value
    raise not_serialisable(f"{name} must be a string")


def required_text(members: Members, name: str) -> str:
    value = text(members, name)
    if value is None:
        raise missing(name)
    return value


def boolean(members: Members, name: str) -> bool | None:
    value = members.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise not_serialisable(f"{name} must be a boolean")


def whole(members: Members, name: str) -> int | None:
    value = members.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise not_serialisable(f"{name} must be a whole number")


def structure(members: Members, name: str) -> Members | None:
    value = members.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise not_serialisable(f"{name} must be a structure")


def texts(members: Members, name: str) -> list[str]:
    value = members.get(name)
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise not_serialisable(f"{name} must be a list of strings")


def structures(members: Members, name: str) -> list[Members]:
    value = members.get(name)
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    raise not_serialisable(f"{name} must be a list of structures")


def missing(name: str) -> Exception:
    return bad_request(f"{name} is missing: it is required.")
