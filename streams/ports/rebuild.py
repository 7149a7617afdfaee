"""What a rebuild needs: the topic from its beginning to a captured end, a place to fold it anew, and the live facts."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from streams.domain.addresses import RecipientKey
from streams.domain.facts import Placed, RecipientOutcome, RecipientState, UnmatchedPage
from streams.domain.rebuilding import Comparison, Difference, Horizon
from streams.domain.records import Record
from streams.ports.recipients import EvidenceStore, FactsTransaction

T = TypeVar("T")


class TopicPast(Protocol):
    """The records of mail.delivery-events up to the end of one moment."""

    async def capture(self) -> int:
        """Takes the end; how many records there are up to it, at most."""

    def batches(self) -> AsyncIterator[Sequence[Record]]:
        """All of them from the beginning, in order within each partition; may be asked for again."""

    def horizon(self) -> Horizon:
        """What the topic still tells, known once the records are read."""

    async def unfolded(self) -> int:
        """How many of these records the stage recipients has not committed yet."""


class Folding(Protocol):
    """Where events are folded: the scratch tables or the live ones."""

    async def transact(self, work: Callable[[FactsTransaction], Awaitable[T]]) -> T:
        """Runs work in one transaction and commits. BadMessage: a value can never be kept."""

    async def unmatched(self, *, after: datetime, before: datetime, limit: int) -> UnmatchedPage:
        """Kept events without a message that were received in this span, oldest first, at most so many."""


class Scratch(Folding, Protocol):
    """Tables of this run alone, which the same fold fills; the live ones are read for correlation and never changed."""

    async def begin(self) -> None:
        """Takes the time, then makes the tables. What the live facts take in after this time may not be in the topic's past."""

    async def finish(self) -> None:
        """Nothing is folded any more: the comparison may begin."""

    async def compare(self, comparison: Comparison) -> int:
        """Compares with the live tables as they are now; how many recipients are left out since new events reached them."""

    async def states(self, keys: Sequence[RecipientKey]) -> Sequence[RecipientState]:
        """As they were rebuilt."""


class OutcomePage(Protocol):
    """The outcomes of some messages and recipients within one transaction."""

    async def lock(self) -> Sequence[Placed]:
        """Locks the recipients as the fold does, and returns the stored events of these messages."""

    async def replace(self, outcomes: Sequence[RecipientOutcome]) -> None:
        """Sets these to exactly this."""


class LiveFacts(Folding, Protocol):
    """The live tables, where they are mended."""

    @property
    def evidence(self) -> EvidenceStore: ...

    async def transact_outcomes(
        self, rows: Sequence[Difference], work: Callable[[OutcomePage], Awaitable[None]]
    ) -> None:
        """Runs work on the outcomes that these rows name; from its start again after a deadlock."""
