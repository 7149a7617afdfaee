"""What the scheduler needs: the schedule in PostgreSQL, the sending account."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from streams.domain.facts import (
    Settled,
)
from streams.domain.schedule import (
    Backlog,
    Expired,
    OldestPending,
    Resending,
    Resent,
    Swept,
    TakenDue,
    UnsettledPage,
)
from streams.domain.sending_account import SendingAccount
from streams.domain.topics import Lane


class Schedule(Protocol):
    """What the scheduler does in PostgreSQL, each method one transaction and safe beside other replicas."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def take_duty(self, name: str, every: timedelta) -> bool:
        """Whether this replica does it this time."""

    async def take_due(self, limit: int) -> TakenDue:
        """Moves what is due into the feed; what turns out to be taken by SES is settled instead."""

    async def expire_leases(self, limit: int) -> Expired:
        """Turns what ran out into ambiguous, and settles at once what there is evidence of."""

    async def unsettled(self, *, after: UUID, limit: int) -> UnsettledPage:
        """Attempts of unknown outcome in the order of their ids."""

    async def settle(self, outbox_ids: Sequence[UUID]) -> Settled:
        """Settles rows by the evidence that there is; those under a call or a lock are left for later."""

    async def hold_ambiguous(self, *, after: timedelta, limit: int) -> int:
        """Gives what stayed ambiguous for so long to a person; how many rows."""

    async def resend_ambiguous(self, rule: Resending, *, limit: int) -> Resent:
        """Puts back to pending what its policy says; each is written down as a possible duplicate."""

    async def make_duty(self, name: str) -> None:
        """Must be called before sweep_pending with this name."""

    async def sweep_pending(self, name: str, *, age: timedelta, limit: int) -> Swept:
        """Wakes rows of this age that are pending and wait nowhere; each row is looked at once under a name."""

    async def beat(self, keys: Sequence[str], *, every: timedelta) -> bool:
        """Puts the heartbeats into the feed, if it is this replica's turn."""

    async def expire_suppressions(self, limit: int) -> int:
        """Removes what is over; how many rows."""

    async def forget_watches(self, older_than: timedelta) -> int:
        """Removes watches of intake processes that are long gone; how many."""

    async def make_feed_partitions(self, days_ahead: int) -> int | None:
        """How many were made; None if the feed was too busy for it."""

    async def set_rate(self, scope: str, per_second: float) -> None: ...

    async def pause_account(self, value: str, *, reason: str, who: str, lasting: timedelta) -> bool:
        """Pauses the account, or keeps it paused; whether that is new."""

    async def resume_account(self, value: str, *, who: str) -> bool:
        """Lifts that pause, if it is by the same; whether there was one."""

    async def backlog(self, *, heartbeats_every: timedelta) -> Backlog:
        """What waits now."""

    async def oldest_pending(self, lane: Lane, *, start: UUID, limit: int) -> OldestPending | None:
        """The oldest pending row among the next ones from this id, or where the search goes on; None if there is no row."""


class AccountReader(Protocol):
    """What SES says of the sending account."""

    @property
    def region(self) -> str:
        """The region of the account; Misconfigured without one."""

    async def read(self) -> SendingAccount:
        """Unavailable if SES does not answer or refuses us."""

    async def stop(self) -> None: ...
