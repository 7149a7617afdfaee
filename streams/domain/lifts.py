"""Lifts of suppressions, which are facts with a time: evidence at or before it never suppresses again, newer evidence does."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import ANY, Suppression, SuppressionReason

Scope = tuple[RecipientKey, str, str, SuppressionReason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """One row of table suppression_log; "*" stands for every recipient, tenant, lane or reason."""

    recipient_key: str
    tenant: str
    lane: str
    reason: str
    at: datetime

    def covers(self, scope: Scope) -> bool:
        own = self.recipient_key, self.tenant, self.lane, self.reason
        return all(asked in (ANY, given) for asked, given in zip(own, scope, strict=True))


class Lifts:
    """The lifts that concern some recipients."""

    __slots__ = ("_by_key",)

    def __init__(self, lifts: Iterable[Lift] = ()) -> None:
        self._by_key: dict[str, list[Lift]] = {}
        for lift in lifts:
            self._by_key.setdefault(lift.recipient_key, []).append(lift)

    def until(self, scope: Scope) -> datetime | None:
        """The time of the latest lift of this scope: no evidence up to it counts."""
        found = (*self._by_key.get(scope[0], ()), *self._by_key.get(ANY, ()))
        return max((lift.at for lift in found if lift.covers(scope)), default=None)

    def allow(self, suppression: Suppression) -> bool:
        """The evidence is newer than every lift of what it suppresses."""
        until = self.until(suppression.scope)
        return until is None or suppression.evidence_at > until


NO_LIFTS: Final = Lifts()
