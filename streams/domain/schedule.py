"""What the scheduler learns from the database, and the ages at which pending rows are woken again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from streams.domain.facts import Settled

GROWTH: Final = 4
OLDEST_SWEEP: Final = timedelta(days=30)
FIRST_ID: Final = UUID(int=0)
# Between two reports of a process of the intake; they come every few seconds.
LONGEST_BREAK: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenDue:
    """Rows of email_due that were due, and what became of those that were still pending."""

    taken: int
    pointers: int
    expired: int
    settled: Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Leases that ran out, and what evidence settled of them at once."""

    leases: int
    settled: Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledPage:
    """Messages with attempts of unknown outcome; last is where the next page begins, None at the end."""

    last: UUID | None
    outbox_ids: Sequence[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resending:
    """When the policies resend and resend-when-silent send again, counted from when the outcome was found to be unknown.

    A row that has used up its attempts is not sent again; the intake that is asked for the silence has to report more often
    than every longest_break.
    """

    after: timedelta
    when_silent_after: timedelta
    most_attempts: int
    longest_break: timedelta = LONGEST_BREAK


@dataclass(frozen=True, slots=True, kw_only=True)
class Resent:
    """Rows that their policies put back."""

    resent: int = 0
    resent_when_silent: int = 0

    @property
    def rows(self) -> int:
        return self.resent + self.resent_when_silent

    def by_policy(self) -> dict[str, int]:
        return {"resend": self.resent, "resend-when-silent": self.resent_when_silent}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Rows that were looked at, and how many of them got a new pointer."""

    seen: int
    pointers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits. heartbeat_age is in seconds; None before the first one."""

    due: int
    leases: int
    ambiguous: int
    held: int
    dead_letters: int
    possible_duplicates: int
    proven_duplicates: int
    heartbeat_age: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestPending:
    """A pending row and its age in seconds; age None: none up to this id."""

    id: UUID
    age: float | None


def sweep_ages(first: timedelta) -> list[timedelta]:
    """Each four times the one before, up to 30 days: a row is woken a few times in its life, not once a round."""
    ages = [first]
    while ages[-1] * GROWTH <= OLDEST_SWEEP:
        ages.append(ages[-1] * GROWTH)
    return ages


def first_id_of(moment: datetime) -> UUID:
    """The smallest UUID of version 7 of this millisecond."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)
