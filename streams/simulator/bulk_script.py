"""Statuses that entries of SendBulkEmail get by script, in place of what they would get."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from streams.simulator.strict import BadDocumentError, Document, Fields

SUCCESS = "SUCCESS"
STATUSES = (
    "MESSAGE_REJECTED",
    "MAIL_FROM_DOMAIN_NOT_VERIFIED",
    "CONFIGURATION_SET_NOT_FOUND",
    "TEMPLATE_NOT_FOUND",
    "ACCOUNT_SUSPENDED",
    "ACCOUNT_THROTTLED",
    "ACCOUNT_DAILY_QUOTA_EXCEEDED",
    "INVALID_SENDING_POOL_NAME",
    "ACCOUNT_SENDING_PAUSED",
    "CONFIGURATION_SET_SENDING_PAUSED",
    "INVALID_PARAMETER",
    "TRANSIENT_FAILURE",
    "FAILED",
)
_OF_CODE = {
    "LimitExceededException": "ACCOUNT_DAILY_QUOTA_EXCEEDED",
    "TooManyRequestsException": "ACCOUNT_THROTTLED",
    "MessageRejected": "MESSAGE_REJECTED",
}


def status_of(code: str) -> str:
    """The status of an entry that one SendEmail would have refused with that code."""
    return _OF_CODE.get(code, "INVALID_PARAMETER")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStatus:
    """The status of the next `next` entries to a matching address; None: of all."""

    match: str
    status: str
    error: str
    next: int | None


class BulkScript:
    """An ordered list; an entry gets the first that matches one of its addresses."""

    def __init__(self) -> None:
        self._statuses: tuple[EntryStatus, ...] = ()
        self._used: Counter[int] = Counter()

    def replace(self, statuses: tuple[EntryStatus, ...]) -> None:
        self._statuses = statuses
        self._used.clear()

    def next_status(self, addresses: Iterable[str]) -> EntryStatus | None:
        lowered = [address.lower() for address in addresses]
        for number, status in enumerate(self._statuses):
            if status.next is not None and self._used[number] >= status.next:
                continue
            if any(fnmatchcase(address, status.match) for address in lowered):
                self._used[number] += 1
                return status
        return None

    def as_json(self) -> list[dict[str, Any]]:
        return [{"match": item.match, "status": item.status} for item in self._statuses]


def read_statuses(documents: list[Document]) -> tuple[EntryStatus, ...]:
    return tuple(_read_status(document, f"entry {n}") for n, document in enumerate(documents))


def _read_status(document: Document, where: str) -> EntryStatus:
    fields = Fields(document, where=where)
    status = EntryStatus(
        match=fields.text("match", "*").lower(),
        status=fields.text("status"),
        error=fields.text("error", "Scripted."),
        next=fields.whole("next", least=1) if "next" in fields else None,
    )
    fields.done()
    if not status.status.isascii() or status.status == SUCCESS:
        raise BadDocumentError(
            f"Field 'status' in {where} must be one of {', '.join(STATUSES)}, or a new word."
        )
    return status
