"""The states of an outbox row and the legal ways between them (email_outbox_transition of the schema says the same)."""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where an outbox row is. What happened to the recipient afterwards is no state of the row."""

    PENDING = "pending"
    SENDING = "sending"
    SUBMITTED = "submitted"
    FAILED = "failed"
    AMBIGUOUS = "ambiguous"
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


TRANSITIONS: Final = frozenset(
    {
        (State.PENDING, State.SENDING),
        (State.PENDING, State.SUPPRESSED),
        (State.PENDING, State.EXPIRED),
        (State.PENDING, State.CANCELLED),
        (State.PENDING, State.SUBMITTED),
        (State.SENDING, State.SUBMITTED),
        (State.SENDING, State.PENDING),
        (State.SENDING, State.FAILED),
        (State.SENDING, State.SUPPRESSED),
        (State.SENDING, State.AMBIGUOUS),
        (State.AMBIGUOUS, State.SUBMITTED),
        (State.AMBIGUOUS, State.PENDING),
        (State.AMBIGUOUS, State.FAILED),
        (State.AMBIGUOUS, State.CANCELLED),
        (State.FAILED, State.SUBMITTED),
        (State.FAILED, State.PENDING),
    }
)


def is_legal(before: State, after: State) -> bool:
    """Whether a row may go from one state to the other; staying is always legal."""
    return before is after or (before, after) in TRANSITIONS
