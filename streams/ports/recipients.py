"""What the fold needs: records, the facts, one transaction a batch."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import Suppression
from streams.domain.delivery_events import DeliveryEvent, EventId
from streams.domain.facts import (
    Kept,
    Placed,
    RecipientOutcome,
    RecipientState,
    Settled,
    UnmatchedPage,
)
from streams.domain.records import Record

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


class FactsTransaction(Protocol):
    """The statements of one fold, in the order in which it needs them."""

    async def correlate(self, events: Sequence[DeliveryEvent]) -> list[Placed]:
        """Each event with its message, in the same order."""

    async def lock(self, scopes: Sequence[tuple[str, RecipientKey]]) -> None:
        """Locks the recipients' rows; nothing of their history may be read before."""

    async def keep(self, placed: Sequence[Placed]) -> list[Kept]:
        """Keeps the events; returns those that are new or now know more of their message than before."""

    async def merge_outcomes(self, outcomes: Sequence[RecipientOutcome]) -> None: ...

    async def merge_states(self, states: Sequence[RecipientState]) -> None: ...

    async def suppress(self, suppressions: Sequence[Suppression]) -> int:
        """Puts them in force, each with its earliest evidence; how many rows were new or changed."""

    async def unattributed(self, keys: Sequence[RecipientKey]) -> list[DeliveryEvent]:
        """What is kept of these recipients and belongs to no known message."""

    async def restate(self, states: Sequence[RecipientState]) -> None:
        """Sets the rows of no known tenant to exactly this."""

    async def withdraw(self, evidence: Sequence[tuple[RecipientKey, EventId]]) -> int:
        """Withdraws suppressions of all tenants that rest on evidence which has a tenant now."""

    async def remember_attempts(self, forgotten: Sequence[Placed]) -> int:
        """Keeps attempts that only their events know; how many of their messages SES took twice."""

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
