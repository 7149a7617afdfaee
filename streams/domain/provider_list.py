"""The provider's own suppression list of the account: what is read of it, and what a call about it can lead to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from streams.domain.addresses import RecipientKey, recipient_key
from streams.domain.delivery_events import EventId
from streams.domain.mailboxes import bare_address

IMPORTED: Final = "ses-list:"
LONGEST_PAUSE: Final = timedelta(minutes=10)


class Call(StrEnum):
    """What is asked of the provider."""

    LIST = "list"
    UNLIST = "unlist"


class Outcome(StrEnum):
    """What became of a call. refused: it can never succeed as it is."""

    DONE = "done"
    NOT_LISTED = "not-listed"
    THROTTLED = "throttled"
    DENIED = "denied"
    TOKEN_REFUSED = "token-refused"  # noqa: S105 an outcome
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAddress:
    """One entry as the provider tells it; updated None: it does not say when."""

    address: str
    updated: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """Some entries, and where the next page begins; None: this was the last."""

    entries: Sequence[ListedAddress]
    next_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRecipient:
    """An entry without its address: the suppression of every tenant and lane that it asks for."""

    recipient_key: RecipientKey
    listed_at: datetime

    @property
    def evidence_id(self) -> EventId:
        """The same for the same entry, whenever it is read."""
        at = self.listed_at.astimezone(UTC).isoformat(timespec="milliseconds")
        return EventId(f"{IMPORTED}{self.recipient_key}:{at}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipients:
    """What a page comes to; unusable: entries whose address is none that mail could go to."""

    entries: int
    listed: Sequence[ListedRecipient]
    unusable: int


def recipients_of(
    entries: Sequence[ListedAddress], *, salt: bytes, read_at: datetime
) -> Recipients:
    """Each recipient once, with the latest time; an entry without a time is as old as its reading."""
    found: dict[RecipientKey, datetime] = {}
    unusable = 0
    for entry in entries:
        address = bare_address(entry.address)
        if address is None:
            unusable += 1
            continue
        key = recipient_key(address, salt)
        at = entry.updated or read_at
        found[key] = max(found.get(key, at), at)
    return Recipients(
        entries=len(entries),
        listed=[ListedRecipient(recipient_key=key, listed_at=found[key]) for key in sorted(found)],
        unusable=unusable,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProgress:
    """How far the import of the list is; finished None: not at its end yet."""

    asked: datetime
    started: datetime | None
    finished: datetime | None
    pages: int
    entries: int
    suppressed: int
    lifted: int
    unusable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Leave to make one call now, and what there is to do: asked is set while the import is not at its end."""

    importing: datetime | None
    next_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlisting:
    """An address to delete from the provider's list. requested tells this wish from a later one for the same recipient."""

    recipient_key: RecipientKey
    address: str
    requested: datetime
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistingBacklog:
    """Wishes that wait, and those that a person has to fulfil, since no address is known."""

    waiting: int
    without_address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTaken:
    """What a page did: suppressions that are new, and entries that an operator had lifted since."""

    suppressed: int
    lifted: int


def is_answered(call: Call, outcome: Outcome) -> bool:
    """The next call may follow at the usual pace: one address that is refused says nothing about the next."""
    if call is Call.UNLIST and outcome is Outcome.REFUSED:
        return True
    return outcome in (Outcome.DONE, Outcome.NOT_LISTED)


def pause_after(failures: int, *, pace: timedelta) -> timedelta:
    """How long nobody calls after a call; longer with each failure in a row."""
    return min(pace * 2.0 ** min(failures, 20), max(LONGEST_PAUSE, pace))
