"""The circuit between us and SES: what senders tell about their calls, and what all of them are told.

It opens after TRIP calls in a row that ended unknown or unreachable, over at least TRIP_MESSAGES messages. While it is open
nothing is granted but one probe at a time.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Self
from uuid import UUID

TRIP: Final = 20
TRIP_MESSAGES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeIntervals:
    """From the failure of one probe to the next: first_s, twice as long each time up to longest_s, shortened by up to a quarter.

    A probe that may have been taken leaves an ambiguous message behind, so that those are rarer: up to longest_s; where no
    byte was ever written it is unreachable_s. answer_s: so long a probe may take, and nobody else probes meanwhile.
    """

    first_s: float = 5.0
    longest_s: float = 240.0
    unreachable_s: float = 30.0
    answer_s: float = 30.0

    @classmethod
    def of(cls, *, first_s: float, longest_s: float, answer_s: float) -> Self:
        unreachable_s = max(first_s, longest_s / 8)
        return cls(
            first_s=first_s, longest_s=longest_s, unreachable_s=unreachable_s, answer_s=answer_s
        )


PROBE_INTERVALS: Final = ProbeIntervals()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How calls ended since the last report: SES was reached, and after that calls of these messages failed, one entry a call.

    is_unwritten: no byte of any of them was written. unused_probe: the number of a probe whose call was not made; failed_probe: of one
    that failed.
    reached_ago_s: since when that is, and began_ago_s the beginning of that call, at the time of telling.
    """

    reached: bool = False
    reached_ago_s: float = field(default=0.0, compare=False)
    began_ago_s: float = field(default=0.0, compare=False)
    failed: tuple[UUID, ...] = ()
    reason: str | None = None
    is_unwritten: bool = True
    unused_probe: int | None = None
    failed_probe: int | None = None

    def then(self, later: Self) -> Self:
        """Both, in this order."""
        whole = type(self)(
            reached=self.reached or later.reached,
            failed=self.failed + later.failed,
            reason=later.reason or self.reason,
            is_unwritten=self.is_unwritten and later.is_unwritten,
            unused_probe=_later(self.unused_probe, later.unused_probe),
            failed_probe=_later(self.failed_probe, later.failed_probe),
        )
        if not later.reached:
            return whole
        return type(self)(
            reached=True,
            failed=later.failed,
            reason=later.reason,
            is_unwritten=later.is_unwritten,
            unused_probe=whole.unused_probe,
            failed_probe=whole.failed_probe,
        )


def _later(first: int | None, second: int | None) -> int | None:
    return first if second is None else second


NOTHING: Final = Report()
REACHED: Final = Report(reached=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitState:
    """The circuit after a report, as PostgreSQL keeps it for all senders. has_opened: by this report.

    probe: the number of the probe that was granted with the answer.
    """

    failing: int = 0
    failing_messages: int = 0
    open_since: float | None = None
    reason: str | None = None
    probe: int | None = None
    has_opened: bool = False


CLOSED: Final = CircuitState()


def explanation(state: CircuitState, scope: str) -> str | None:
    """Why nothing is claimed, in a sentence; None if the circuit is closed."""
    if state.open_since is None:
        return None
    since = datetime.fromtimestamp(state.open_since, UTC).isoformat(timespec="seconds")
    return (
        f"SES in {scope} fails since {since} ({state.reason or 'no reason'}): nothing is claimed, one message is tried at "
        "growing intervals, and sending goes on by itself once one is answered"
    )
