"""What the fold needs: records, the facts, one transaction a batch; and what reclassify needs."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import Suppression, SuppressionReason
from streams.domain.delivery_events import DeliveryEvent, EventId
from streams.domain.facts import (
    Kept,
    Placed,
    RecipientOutcome,
    RecipientScope,
    RecipientState,
    Settled,
    UnmatchedPage,
)
from streams.domain.lifts import Lifts, Scope
from streams.domain.reclassification import Evidence, LiftedRow
from streams.domain.records import Record
from streams.domain.soft_bounces import Alike

T = TypeVar("T")


class RecordConsumer(Protocol):
    """A member of a consumer group that commits by hand. A rebalance may take partitions away at any time: what was read of
    them is read again by their next owner."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def poll(self) -> Sequence[Record]:
        """The next records, in order within each partition; none after a short while without any."""

    async def commit(self, records: Sequence[Record]) -> None:
        """The outcome of all records up to these is durable. Unavailable when the broker does not answer."""

    async def is_caught_up(self) -> bool:
        """Whether all that the broker had a moment ago was polled."""


class SuppressionRows(Protocol):
    """Table suppression within one transaction. Rows without evidence were put in by hand and are left as they are."""

    async def lock(self, keys: Collection[RecipientKey]) -> Lifts:
        """Locks these recipients' suppressions before any of them is changed; the lifts that concern them."""

    async def suppress(self, suppressions: Sequence[Suppression]) -> int:
        """Puts them in force, each with the evidence that is told; how many rows were new or changed."""

    async def replace(self, suppressions: Sequence[Suppression]) -> int:
        """Sets them to exactly this; how many rows were new or changed."""

    async def withdraw(self, scopes: Collection[Scope]) -> int:
        """Takes rows away that nothing supports any more; how many were there."""

    async def withdraw_unattributed(
        self, evidence: Collection[tuple[RecipientKey, EventId, SuppressionReason]]
    ) -> int:
        """Withdraws suppressions of all tenants that rest on evidence which has a tenant now."""

    async def suppressed_softly(
        self, scopes: Collection[RecipientScope]
    ) -> Collection[RecipientScope]:
        """Which of these a streak of soft bounces suppresses."""


class FactsTransaction(Protocol):
    """The statements of one fold, in the order in which it needs them."""

    @property
    def suppressions(self) -> SuppressionRows: ...

    async def correlate(self, events: Sequence[DeliveryEvent]) -> list[Placed]:
        """Each event with its message, in the same order."""

    async def lock(self, scopes: Sequence[RecipientScope]) -> dict[RecipientScope, RecipientState]:
        """Locks the recipients' rows and returns them; nothing of their history may be read before."""

    async def keep(self, placed: Sequence[Placed]) -> list[Kept]:
        """Keeps the events; returns those that are new or now know more of their message than before."""

    async def merge_outcomes(self, outcomes: Sequence[RecipientOutcome]) -> None: ...

    async def merge_states(self, states: Sequence[RecipientState]) -> None:
        """Adds to the locked rows, their streaks apart."""

    async def unattributed(self, keys: Sequence[RecipientKey]) -> list[Placed]:
        """What is kept of these recipients and belongs to no known message."""

    async def soft_bounces(
        self, last_deliveries: Mapping[RecipientScope, datetime | None]
    ) -> list[Alike]:
        """The kept bounces of these tenants' recipients since their last delivery, put together by what they say."""

    async def restate(self, states: Sequence[RecipientState]) -> None:
        """Sets the locked rows to exactly this."""

    async def restate_streaks(self, states: Sequence[RecipientState]) -> None:
        """Sets the streaks of the locked rows to exactly this."""

    async def remember_attempts(self, forgotten: Sequence[Placed]) -> None:
        """Keeps attempts that only their events know."""

    async def settle(self, outbox_ids: Sequence[UUID]) -> Settled:
        """Settles rows by the evidence that there is; those under a call or a lock are left for later."""


class Facts(Protocol):
    """The facts of recipients."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def transact(self, work: Callable[[FactsTransaction], Awaitable[T]]) -> T:
        """Runs work in one transaction and commits; from its start again after a deadlock. BadMessage: a value can never be kept."""

    async def unmatched(self, *, after: datetime, before: datetime, limit: int) -> UnmatchedPage:
        """Kept events without a message that were received in this span, oldest first, at most so many."""

    async def count_unmatched(self, *, after: datetime) -> int:
        """How many events were kept since then and have no message."""


class EvidencePage(Protocol):
    """The stored evidence of some recipients within one transaction."""

    @property
    def suppressions(self) -> SuppressionRows: ...

    async def lock(self) -> Sequence[Evidence]:
        """Locks these recipients as the fold does, and returns all their evidence."""

    async def restate(self, states: Sequence[RecipientState]) -> None:
        """Sets the locked rows to exactly this."""

    async def lift(self, rows: Sequence[LiftedRow], *, by_whom: str, rules: int) -> int:
        """Lifts these suppressions, which is logged with its reason; how many there were."""


class EvidenceStore(Protocol):
    """The stored evidence, page by page in the order of the recipient keys."""

    async def keys(self, *, after: RecipientKey | None, limit: int) -> Sequence[RecipientKey]:
        """The next recipients of whom there is evidence."""

    async def read(self, keys: Sequence[RecipientKey]) -> Sequence[Evidence]:
        """All evidence of these recipients, as it is at this moment."""

    async def transact(
        self, keys: Sequence[RecipientKey], work: Callable[[EvidencePage], Awaitable[T]]
    ) -> T:
        """Runs work on these recipients in one transaction that may write; from its start again after a deadlock."""
