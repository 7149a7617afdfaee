"""Timestamps as providers write them."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_SPACE_BEFORE_OFFSET: Final = re.compile(r"\s+(?=[+-]\d\d:?\d\d$|Z$)")
_YEARS: Final = range(1990, 2200)


def parse_timestamp(value: object) -> datetime | None:
    """The moment in UTC; None if it is not one. Reads ISO 8601 with any offset and precision (no offset: UTC), the date of a
    mail header, and seconds or milliseconds since 1970."""
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, int | float):
            moment = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        elif isinstance(value, str) and len(value) <= 100:
            moment = _parse_text(value.strip())
        else:
            return None
        return moment.astimezone(UTC) if moment.year in _YEARS else None
    except (ValueError, TypeError, OverflowError, IndexError, OSError):
        return None


def _parse_text(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        compact = _SPACE_BEFORE_OFFSET.sub("", text)
        try:
            moment = datetime.fromisoformat(compact)
        except ValueError:
            moment = parsedate_to_datetime(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
