"""JSON as other systems write it: whatever SNS can carry is read."""

import json
from typing import Any

import orjson

from streams.domain.errors import BadMessage


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
