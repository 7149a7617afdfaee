"""Permits of the shared rate: the slots of a grant on our own clock, and how many permits are worth asking for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# The slots of a grant begin within so long a window.
WINDOW_S: Final = 0.2
# A call may be so late in its slot: in any second, calls that are up to 50 ms late are at most 5 % more than the rate,
# which the default safety factor of 0.95 covers. A process that is slower than that may be later, and pays for it: with
# lateness L a message costs (1 + L) / 1.05 times its recipients, so that no second holds more.
LATENESS_S: Final = 0.05
LONGEST_LATENESS_S: Final = 1.0
LONGEST_LEAD_S: Final = 1.0
_DRIFT: Final = 2e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Permits for the first messages of a question. Times are the server's clock, seconds since 1970.

    was_ahead: the rate's row stood further in the future than permits can reach, so that it began anew from now.
    """

    messages: int
    permits: float
    server_now: float
    start_at: float
    per_second: float
    wait_s: float
    was_ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """When one call may begin, on our monotonic clock."""

    earliest: float
    latest: float


class ServerClock:
    """The server's clock as seen from our monotonic one, known within bounds that answers make narrower.

    What begins counts from the arrival of an answer, what ends from the sending of its question: so neither a slow
    answer nor a frozen process moves a slot.
    """

    __slots__ = ("_at", "_high", "_low")

    def __init__(self) -> None:
        self._low = float("-inf")
        self._high = float("inf")
        self._at = 0.0

    def observe(self, *, asked_at: float, server_now: float, answered_at: float) -> None:
        """The server's clock showed server_now at some moment between our two."""
        low, high = asked_at - server_now, answered_at - server_now
        drift = (answered_at - self._at) * _DRIFT
        self._low, self._high = max(low, self._low - drift), min(high, self._high + drift)
        if self._low > self._high:  # one of the clocks was set
            self._low, self._high = low, high
        self._at = answered_at

    def now(self, at: float) -> float | None:
        """What the server's clock shows at this time of ours, to half the bounds; None before the first answer."""
        if self._high == float("inf"):
            return None
        return at - (self._low + self._high) / 2

    def begin(self, server_time: float) -> float:
        """Our time at which the server's clock shows at least this."""
        return server_time + self._high

    def end(self, server_time: float) -> float:
        """Our time at which the server's clock shows at most this."""
        return server_time + self._low


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a question for permits is based on."""

    lateness_s: float

    def cost(self, recipients: int) -> float:
        """What a message costs if its call may be so late."""
        return recipients * (1 + self.lateness_s) / (1 + LATENESS_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A grant under the terms of its question, on the clock of its server.

    is_probe: of one message, to see whether SES works again.
    """

    grant: Grant
    clock: ServerClock
    terms: Terms
    is_probe: bool = False

    @property
    def granted_at(self) -> float:
        """When it was granted, on our clock, at the earliest."""
        return self.clock.end(self.grant.server_now)

    def slots(self, recipients: Sequence[int]) -> list[Slot]:
        """A slot for each message that was granted, in order; never for more cost than was granted."""
        found: list[Slot] = []
        before = 0.0
        for count in recipients[: self.grant.messages]:
            at = self.grant.start_at + before / self.grant.per_second
            before += self.terms.cost(count)
            if before > self.grant.permits + 1e-6:
                break
            latest = self.clock.end(at) + self.terms.lateness_s
            found.append(Slot(earliest=self.clock.begin(at), latest=latest))
        return found


class Pace:
    """How many messages to ask permits for, how far ahead their first slot should begin, how late a call may be.

    Permits that are not used are void for everybody: while slots are met the size grows and the lateness shrinks, and
    the other way round when one is missed. The lead follows the time that it takes from a grant to the first call.
    """

    __slots__ = ("_in_time", "_lateness", "_lead", "_missed_at", "_most", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = min(16, most)
        self._lead = 0.01
        self._lateness = LATENESS_S
        self._in_time = 0
        self._missed_at = float("-inf")

    @property
    def size(self) -> int:
        return self._size

    @property
    def lead_s(self) -> float:
        return self._lead

    @property
    def terms(self) -> Terms:
        return Terms(lateness_s=self._lateness)

    def prepared(self, seconds: float) -> None:
        """So long took it from a grant to a call that could begin."""
        self._lead = min(max(seconds, 0.8 * self._lead + 0.2 * seconds), LONGEST_LEAD_S)

    def met(self) -> None:
        """A call began in its slot."""
        self._in_time += 1
        if self._in_time >= self._size:
            self._in_time = 0
            self._size = min(self._size * 2, self._most)
            self._lateness = max(self._lateness * 0.7, LATENESS_S)

    def missed(self, now: float) -> None:
        """A slot was given up; slots that are missed together count once."""
        self._in_time = 0
        if now - self._missed_at > WINDOW_S:
            self._missed_at = now
            self._size = max(self._size // 2, 1)
            self._lateness = min(self._lateness * 2, LONGEST_LATENESS_S)
