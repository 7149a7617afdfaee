"""What was found of a ses_send variant at the end of its observation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from streams.domain.errors import BadMessage
from tests.cases.send_state import Attempt, OutboxRow
from tests.cases.ses_script import Call
from tests.cases.words import CONNECTION_FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Rows and attempts as PostgreSQL has them, calls as the fake saw them. refused: the insert itself was."""

    rows: Sequence[OutboxRow]
    attempts: Sequence[Attempt]
    calls: Sequence[Call]
    pauses: set[str]
    leases: Mapping[str, float]
    tries: Sequence[datetime]
    refused: BadMessage | None
    dead_letters: Mapping[UUID, str]

    def paired(self) -> list[tuple[Call, Attempt | None]]:
        """Each call with what the product wrote down of it; None where it has not yet."""
        by_id = {attempt.id: attempt for attempt in self.attempts}
        seen = {call.attempt for call in self.calls}
        # A call that failed while it connected told nobody its attempt: they follow each other in time.
        unseen = iter([attempt for attempt in self.attempts if attempt.id not in seen])
        return [
            (
                call,
                next(unseen, None)
                if call.answer.get("fault") in CONNECTION_FAULTS
                else by_id.get(call.attempt or ""),
            )
            for call in self.calls
        ]

    def attempt_ids(self) -> list[str]:
        """Of each call, in order."""
        return [
            call.attempt or (attempt.id if attempt else "none") for call, attempt in self.paired()
        ]

    @property
    def retry_after_s(self) -> float | None:
        """From the end of the first call that failed to the time set for the next."""
        failed = [a for _, a in self.paired() if a is not None and a.outcome != "accepted"]
        # Before it the row may have waited for other reasons.
        later = [at for at in self.tries if failed and at > failed[0].finished]
        return (min(later) - failed[0].finished).total_seconds() if later else None


def most_in_window(accepted: Sequence[tuple[float, int]], seconds: float) -> int:
    """The most recipients that were accepted in any window of this length."""
    most = recent = start = 0
    for end, (at, count) in enumerate(accepted):
        recent += count
        while accepted[start][0] <= at - seconds:
            recent -= accepted[start][1]
            start += 1
        most = max(most, recent)
        assert start <= end
    return most


def in_seconds(value: float | None) -> float | None:
    """As it is told."""
    return None if value is None or math.isnan(value) else round(value, 3)
