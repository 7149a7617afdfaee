"""JSON bodies of the accept API: what may come in at all, and the digest by which two bodies are the same."""

import hashlib
import math
from collections.abc import Iterator
from typing import Any, Final

import orjson

from streams.domain.api_problems import Kind, refused

DEEPEST: Final = 60


def read_json(body: bytes) -> Any:
    """The value; refuses what is no JSON, is nested too deep, or has a text or number that PostgreSQL cannot keep."""
    if not body.strip():
        raise refused(Kind.MALFORMED, "the body is empty: post a JSON object")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise refused(
            Kind.MALFORMED,
            f"the body is not JSON in UTF-8 (line {error.lineno}, column {error.colno}): correct it",
        ) from None
    if (wrong := unwritable(value)) is not None:
        raise refused(Kind.MALFORMED, f"the body has {wrong}")
    return value


def unwritable(value: Any) -> str | None:
    """What cannot be kept of it, and the remedy."""
    level = [value]
    for _ in range(DEEPEST):
        if any(_is_bad_text(v) for v in level):
            return "a text with the character U+0000: take it out"
        if any(isinstance(v, float) and not math.isfinite(v) for v in level):
            return "a number that is too large: write it as a text"
        level = [member for v in level for member in _members(v)]
        if not level:
            return None
    return f"objects and lists nested deeper than {DEEPEST}: make it flatter"


def _is_bad_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


def _members(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def digest(value: Any, *, route: str) -> bytes:
    """The same for bodies that say the same on the same route, in whatever order and spacing."""
    canonical = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(route.encode() + b"\0" + canonical).digest()
