"""Timestamps as providers write them."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

_SPACE_BEFORE_OFFSET: Final = re.compile(r"\s+(?=[+-]\d\d:?\d\d$|Z$)")
_NAMED_UTC: Final = re.compile(r"\s*(?:UTC|GMT)$")
_LEAP_SECOND: Final = re.compile(r"(?<=\d\d:\d\d:)60(?!\d)")
_SINCE_1970: Final = re.compile(r"\d{10}(?:\d{3})?(?:\.\d{1,9})?")
_YEARS: Final = range(1990, 2200)


def parse_timestamp(value: object) -> datetime | None:
    """The moment in UTC; None if it is not one. Reads ISO 8601 with any offset and precision (no offset: UTC), the date of a
    mail header, and seconds or milliseconds since 1970, as a number or a text."""
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, int | float):
            moment = _since_1970(value)
        elif isinstance(value, str) and len(value) <= 100:
            moment = _parse_text(value.strip())
        else:
            return None
        return moment.astimezone(UTC) if moment.year in _YEARS else None
    except (ValueError, TypeError, OverflowError, IndexError, OSError):
        return None


def _since_1970(value: float) -> datetime:
    return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)


def _parse_text(text: str) -> datetime:
    moment = _parse_written(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _parse_written(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    if _SINCE_1970.fullmatch(text):
        return _since_1970(float(text))
    plain, leap_seconds = _LEAP_SECOND.subn("59", text)
    plain = _SPACE_BEFORE_OFFSET.sub("", _NAMED_UTC.sub("Z", plain.upper()))
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        moment = parsedate_to_datetime(text)
        leap_seconds = 0
    return moment + timedelta(seconds=leap_seconds)
