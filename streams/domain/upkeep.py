"""What is kept how long, and what removing it came to."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from streams.domain.schedule import sweep_ages

# No source repeats an event after so long: until then its id must be known.
EVENTS_REPEAT: Final = timedelta(days=45)


class Drop(StrEnum):
    """What became of the feed's oldest partition."""

    NONE = "none"
    DROPPED = "dropped"
    UNCONFIRMED = "unconfirmed"
    BUSY = "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Ages after which things are removed; None: never."""

    feed: timedelta | None
    contents: timedelta | None
    messages: timedelta | None
    events: timedelta | None
    # Of a message that is removed, no event may be younger.
    quiet: timedelta = EVENTS_REPEAT

    @property
    def contents_ages(self) -> list[timedelta]:
        """When a message is looked at: what had not ended the first time may have at four times the age."""
        return [] if self.contents is None else sweep_ages(self.contents)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedContents:
    """Messages that were looked at, and how many lost their contents."""

    seen: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedMessages:
    """Messages that were looked at up to last, and the rows that are gone, by table."""

    seen: int
    last: UUID | None
    removed: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """How old the oldest things are, in seconds; xmin_behind is in transactions."""

    feed_behind: float
    oldest_transaction: float
    xmin_behind: int
    oldest_message: float
