"""What is looked at once more right before a call, and why a claim is given back without one."""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from streams.ports.sender import SuppressionGuard
from streams.sending.work import Work

# A row whose call was held back for so long is given back: its claim was too long ago.
LONGEST_HOLD_S: Final = 5.0


class Look(StrEnum):
    """What the last look before the call says."""

    GO = "go"
    MISSED = "missed"
    STOPPING = "stopping"
    LEASE = "lease"
    EXPIRED = "expired"
    SUPPRESSED = "suppressed"
    STALE = "stale"
    FAULTY = "faulty"
    CIRCUIT = "circuit"
    TRIED = "tried"
    JOURNAL = "journal"


def lease_clock() -> float:
    """Seconds that go on while the machine is suspended, where that can be told: a lease does too."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


def last_look(
    work: Work,
    *,
    guard: SuppressionGuard,
    now: Callable[[], float],
    clock: Callable[[], float] = lease_clock,
) -> Look:
    """Once more at the table and the clocks."""
    pointer = work.pointer
    if clock() > work.begin_by:
        return Look.LEASE
    if time.monotonic() > work.slot.latest:
        return Look.MISSED
    if pointer.expires is not None and pointer.expires.timestamp() <= now():
        return Look.EXPIRED
    if not guard.usable(pointer.partition, pointer.lane):
        return Look.STALE
    email = work.email
    hit = guard.hit(pointer.partition, email.recipient_key, email.tenant, email.lane)
    return Look.GO if hit in (None, work.overruled) else Look.SUPPRESSED
