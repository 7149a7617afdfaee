"""JSON as other systems write it: whatever SNS can carry is read."""

import json
import re
from typing import Any, Final

import orjson

from streams.domain.errors import BadMessage

# Where a string is left open, the rest belongs to it: each byte is looked at once.
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_SMALL: Final = 64 * 1024
_MOST_CONTAINERS: Final = 4_000
_MOST_VALUES: Final = 20_000


def is_swollen(text: bytes) -> bool:
    """Whether it has so many values that reading it takes long: a megabyte of empty lists costs 0.2 s, one string a thousandth
    of that. What stands inside of strings does not count."""
    if len(text) <= _SMALL or not _has_many(text):
        return False
    quotes = text.count(b'"') - text.count(b'\\"')
    return quotes > 2 * _MOST_VALUES or _has_many(_STRING.sub(b"", text))


def _has_many(text: bytes) -> bool:
    containers = text.count(b"[") + text.count(b"{")
    return containers > _MOST_CONTAINERS or text.count(b",") > _MOST_VALUES


def loads(text: bytes | str) -> Any:
    """The value; BadMessage if it is not JSON, or nested too deep to be read.

    orjson refuses lone surrogates, a byte order mark, UTF-16 and NaN; the slow reader takes them.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"not JSON: {type(error).__name__}") from error
