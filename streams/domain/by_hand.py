"""What an operator decides about messages, and what became of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from streams.domain.schedule import FIRST_ID, Resending


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who decided it, and why; both stand in the audit log."""

    by_whom: str
    why: str


class Settling(StrEnum):
    """What became of a row that a person settles. EXPIRED: not sent, since its time is over."""

    SUBMITTED = "submitted"
    PENDING = "pending"
    EXPIRED = "expired"
    EVIDENT = "evident"
    BUSY = "busy"
    NOT_AMBIGUOUS = "not-ambiguous"
    ABSENT = "absent"


SETTLED: Final = (Settling.SUBMITTED, Settling.PENDING, Settling.EXPIRED)


class Redriving(StrEnum):
    """What became of a dead letter. SUBMITTED: SES had taken an earlier call. HELD, EXPIRED: not without being told so. PURGED: its
    contents were removed."""

    REDRIVEN = "redriven"
    SUBMITTED = "submitted"
    HELD = "held"
    EXPIRED = "expired"
    PURGED = "purged"
    BUSY = "busy"
    NOT_FAILED = "not-failed"
    OLDER = "older"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters; None: any."""

    class_: str | None = None
    reason: str | None = None
    tenant: str | None = None
    lane: str | None = None
    outbox_ids: tuple[UUID, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return (self.class_, self.reason, self.tenant, self.lane, self.outbox_ids) == (None,) * 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """How dead letters are sent again. held: also those that SES may have taken. live: their new time, if it is over."""

    per_second: float
    held: bool = False
    live: timedelta | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where a list goes on, and how much of it."""

    after: UUID = FIRST_ID
    limit: int = 100


def next_step(
    *,
    policy: str,
    since: datetime,
    held: datetime | None,
    can_be_sent: bool,
    resending: Resending,
    hold_after: timedelta,
) -> str:
    """What happens to a call of unknown outcome when no event comes, in words for a person."""
    if held is not None:
        return "waits for a person"
    at_last = f"held for a person at {_text(since + hold_after)}"
    if not can_be_sent:
        return at_last
    match policy:
        case "resend" if resending.after < hold_after:
            return f"sent again at {_text(since + resending.after)}"
        case "resend-when-silent" if resending.when_silent_after < hold_after:
            return f"sent again at {_text(since + resending.when_silent_after)} if the intake had no gap, else {at_last}"
    return at_last


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
