"""The account's own suppression list."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    BOUNCE = "BOUNCE"
    COMPLAINT = "COMPLAINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """One address; `message_id` and `feedback_id` name the event that put it here, if one did."""

    address: str
    reason: Reason
    updated_at: float
    message_id: str | None = None
    feedback_id: str | None = None


class SuppressionList:
    """Addresses by their lower-case form."""

    def __init__(self) -> None:
        self._entries: dict[str, Suppressed] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Suppressed) -> None:
        self._entries[entry.address.lower()] = entry

    def get(self, address: str) -> Suppressed | None:
        return self._entries.get(address.lower())

    def remove(self, address: str) -> bool:
        return self._entries.pop(address.lower(), None) is not None

    def matching(
        self, *, reasons: tuple[Reason, ...], start: float, end: float
    ) -> Iterator[Suppressed]:
        """In the order in which addresses first came; no reasons: every reason."""
        for entry in self._entries.values():
            if (not reasons or entry.reason in reasons) and start <= entry.updated_at <= end:
                yield entry
