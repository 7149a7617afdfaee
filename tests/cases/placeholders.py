"""The placeholders of FORMAT.md: which there are, and how they are filled in."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from tests.sns_signing import timestamp

_ANY: Final = re.compile(r"<([a-z][a-z0-9 +-]*)>")
_NOW: Final = r"now(?:[+-]\d+(?:s|min|h|d))?"
_KNOWN: Final = {
    "sns_http": re.compile(
        rf"{_NOW}|signature|certificate-url|new-certificate-url|message-id|pad-\d+"
    ),
    "ses_event": re.compile(rf"{_NOW}|attempt-\d+|pad-\d+"),
    "ses_send": re.compile(rf"{_NOW}|attempt-\d+|provider-message-id|pad-\d+"),
}
_OFFSET: Final = re.compile(r"now(?:([+-]\d+)(s|min|h|d))?")
_UNITS: Final = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}

Fill = Callable[[str], str | None]


def texts(value: Any) -> Iterator[str]:
    """Every text in it, keys of objects too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)


def unknown(kind: str, value: Any) -> list[str]:
    """What looks like a placeholder and is none of this kind."""
    found = {name for text in texts(value) for name in _ANY.findall(text)}
    return sorted(name for name in found if not _KNOWN[kind].fullmatch(name))


def attempts(value: Any) -> set[int]:
    """The numbers n of every <attempt-n>."""
    return {int(n) for text in texts(value) for n in re.findall(r"<attempt-(\d+)>", text)}


def filled(value: Any, fill: Fill) -> Any:
    """The same with every placeholder that `fill` knows replaced, in keys too; all else stays."""
    if isinstance(value, str):
        return _ANY.sub(lambda found: _or_itself(fill(found[1]), found[0]), value)
    if isinstance(value, list):
        return [filled(item, fill) for item in value]
    if isinstance(value, dict):
        return {filled(key, fill): filled(item, fill) for key, item in value.items()}
    return value


def _or_itself(value: str | None, found: str) -> str:
    return found if value is None else value


def filling(now: datetime, given: Mapping[str, str]) -> Fill:
    """Times relative to now, pads, and what is given by name."""

    def fill(name: str) -> str | None:
        if name in given:
            return given[name]
        if name.startswith("pad-") and name[4:].isdigit():
            return "ü" * int(name[4:])
        offset = _OFFSET.fullmatch(name)
        if offset is None:
            return None
        amount = timedelta(**{_UNITS[offset[2]]: int(offset[1])}) if offset[1] else timedelta()
        return timestamp(now + amount)

    return fill
