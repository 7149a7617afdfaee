"""Messages that SES took and of which it has told nothing since: how many a day, and what that looks like."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from streams.domain.errors import Misconfigured

# SNS repeats a notification for an hour, SES waits for a slow server for up to 14 hours.
SILENCE: Final = timedelta(hours=24)
LONGEST: Final = timedelta(days=45)
# Above this share it is no accident of single messages.
_FEW: Final = 0.05


class Cause(StrEnum):
    """What the silence of a day looks like; only a look at SES and SNS proves it."""

    INTAKE_TROUBLE = "intake-trouble"
    FOREIGN_EVENTS = "events-of-no-message"
    NO_EVENTS = "no-events-at-all"
    MANY = "many"
    SINGLE = "single"


NEXT: Final = {
    Cause.INTAKE_TROUBLE: "the intake had trouble that day: mailstreams drain the dead-letter queue of the subscription",
    Cause.FOREIGN_EVENTS: "events came that belong to no message: see that MAILSTREAMS_CONFIGURATION_SET is the set whose events arrive",
    Cause.NO_EVENTS: "nothing came of any message: see that the configuration set has an event destination with deliveries, and that the SNS subscription is there and confirmed",
    Cause.MANY: "nothing came for a part of the day: see the subscription's delivery failures, then mailstreams drain its dead-letter queue",
    Cause.SINGLE: "few: look the provider's ids up in SES; mailstreams trace tells what is known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The calls that are looked at: those begun from start to end."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Calls of one day (UTC) that SES took, and those without any event."""

    day: date
    accepted: int
    silent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What is known of the intake on a day and the one after it. unmatched: events that belong to no message of ours."""

    unmatched: int
    trouble: str | None


@dataclass(slots=True)
class Counted:
    """Adds up what pages tell."""

    days: dict[date, Day] = field(default_factory=dict)

    def add(self, found: Iterable[Day]) -> None:
        for one in found:
            was = self.days.get(one.day, Day(day=one.day, accepted=0, silent=0))
            self.days[one.day] = Day(
                day=one.day,
                accepted=was.accepted + one.accepted,
                silent=was.silent + one.silent,
            )

    @property
    def silent(self) -> list[Day]:
        return [self.days[day] for day in sorted(self.days) if self.days[day].silent]


def span_of(now: datetime, *, days: float, silence: timedelta = SILENCE) -> Span:
    """Misconfigured for more days than events are kept."""
    if not 0 < days <= LONGEST.days:
        raise Misconfigured(f"--days {days:g}: give more than 0 and at most {LONGEST.days}")
    end = now - silence
    return Span(start=end - timedelta(days=days), end=end)


def cause(day: Day, intake: Intake) -> Cause:
    """The day has at least one silent call."""
    if intake.trouble is not None:
        return Cause.INTAKE_TROUBLE
    if day.silent == day.accepted and intake.unmatched:
        return Cause.FOREIGN_EVENTS
    if day.silent == day.accepted:
        return Cause.NO_EVENTS
    return Cause.MANY if day.silent > _FEW * day.accepted else Cause.SINGLE


def moment_of(id_: UUID) -> datetime:
    """When an id of version 7 was made."""
    return datetime.fromtimestamp((id_.int >> 80) / 1000, UTC)
