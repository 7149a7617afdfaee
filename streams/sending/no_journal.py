"""The journal of an installation without one: what a kill leaves between claim and call is left to the leases."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from streams.domain.attempts import AttemptId, Outcome
from streams.domain.journal_records import Begin


class NoJournal:
    """Keeps nothing."""

    def open(self) -> list[Outcome]:
        return []

    def claiming(self, pairs: Sequence[tuple[UUID, AttemptId]]) -> None:
        pass

    def begun(self, begin: Begin) -> None:
        pass

    def answered(self, outcome: Outcome) -> None:
        pass

    def closed(self, attempt_ids: Iterable[AttemptId]) -> None:
        pass

    def close(self) -> None:
        pass
