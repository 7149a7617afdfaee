"""One claimed row on its way to SES and back."""

from dataclasses import dataclass

from streams.domain.attempts import Email, Outcome, Pause
from streams.domain.bulk_mail import BulkEntry
from streams.domain.pacing import Slot
from streams.domain.pointers import Pointer
from streams.domain.ses_answers import SignedCall
from streams.domain.templates import Content


@dataclass(slots=True, kw_only=True)
class Work:
    """A claim that is ours. Times are monotonic; begin_by is of the clock of leases, which suspension does not stop.

    overruled: the sequence of a suppression in memory that the database did not confirm, so that it stops nothing.
    granted_at: when the permits of its batch were granted, on the first work of the batch alone.
    is_probe: it is the one call that is made while the circuit is open.
    call: the request as it was signed, once; a slot that was missed does not sign again.
    entry: the message as an entry of a bulk call, if it may be one.
    is_over: it has ended, or waits for another slot.
    """

    email: Email
    content: Content
    pointer: Pointer
    slot: Slot
    claimed_at: float
    begin_by: float
    overruled: int | None = None
    granted_at: float | None = None
    call: SignedCall | None = None
    begun: bool = False
    is_probe: bool = False
    entry: BulkEntry | None = None
    is_over: bool = False

    def begin(self) -> None:
        """From now on a byte of the request may be on its way: nothing is proven any more."""
        self.begun = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An outcome to be written, with the pointer that it finishes, if this process has one.

    lost: a release, and nobody knows whether the claim happened. repeat: the same once more, for so many times now, in
    case it happened later. inherited: about an attempt of a process that is dead.
    """

    outcome: Outcome
    pointer: Pointer | None
    pause: Pause | None = None
    lost: bool = False
    inherited: bool = False
    repeat: int = 0
