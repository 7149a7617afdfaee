"""Which repetitions a disturbance explains, and which came of more than what was sent in the last moments before it.

A repetition is a pair of copies of one row, by the times at which relays read it. It was sent again, so the earlier copy was not
confirmed when the relay that sent it ended: it must have been sent right before the disturbance that ended that one, and all that are sent
again may not be more than what was sent in that time. Disturbances that follow each other closely are one.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from relayfuzz.disturbing import Done
from relayfuzz.plan import RELAYS, THEFTS
from relayfuzz.reading import Copy

BOUND_S: Final = 0.2
# After a disturbance things are not as before at once: what is disturbed within so long belongs to it.
_GRACE_S: Final = 1.0
_SERVER_GRACE_S: Final = 3.0
# What surely ends a session of the relay that it is done to.
ENDS: Final = ("kill", "term")
# How long a relay that was frozen may go on writing what it had read before.
_LEFTOVER_S: Final = 3.0
# Time stamps are cut to a millisecond.
_ROUNDED_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Session:
    """A relay became the one that writes. lost: it found the slot lost and sent what a recovery sends."""

    at: float
    relay: str
    lost: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """A relay had given up what it was writing."""

    at: float
    relay: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """A row that was sent twice: when its earlier and its later copy were read."""

    row: str
    earlier: float
    later: float


@dataclass(frozen=True, slots=True)
class Beyond:
    """A repetition that no disturbance explains; age: by how much its earlier copy is older than the disturbance."""

    repeat: Repeat
    words: str
    age: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """All repetitions, and of which kind. oldest: the largest time from an earlier copy to its disturbance, recoveries left out;
    of those it is the time to the recovery."""

    all: int
    of_recoveries: int
    beyond: Sequence[Beyond]
    oldest: float
    oldest_of_recoveries: float


def judge_repeats(
    copies: Iterable[Copy],
    sessions: Sequence[Session],
    disturbances: Sequence[Done],
    *,
    closed: Sequence[Closed] = (),
    bound_s: float,
) -> Repeats:
    """Each repetition by the session in which it was repeated."""
    times: dict[str, list[float]] = defaultdict(list)
    for copy in copies:
        times[str(copy.row_id)].append(copy.at)
    repeats = [
        Repeat(row, earlier, later)
        for row, found in times.items()
        for earlier, later in pairwise(sorted(found))
    ]
    explainer = _Explainer(sorted(sessions, key=lambda s: s.at), closed, disturbances)
    of_recoveries, oldest_of_recoveries, oldest = 0, 0.0, 0.0
    beyond: list[Beyond] = []
    explained: dict[int, list[Beyond]] = defaultdict(list)
    for repeat in repeats:
        if explainer.recovered(repeat):
            of_recoveries += 1
            oldest_of_recoveries = max(oldest_of_recoveries, repeat.later - repeat.earlier)
            continue
        age, words = explainer.age(repeat)
        oldest = max(oldest, age)
        found = Beyond(repeat, words, age)
        if age == float("inf"):
            beyond.append(found)
        else:
            explained[explainer.session_of(repeat.earlier)].append(found)
    every = sorted(at for of_row in times.values() for at in of_row)
    for number, of_session in explained.items():
        most = explainer.sent(number, every, bound_s)
        of_session.sort(key=lambda b: b.age)
        beyond += [b for b in of_session[most:] if b.age > bound_s + _ROUNDED_S]
    return Repeats(
        all=len(repeats),
        of_recoveries=of_recoveries,
        beyond=beyond,
        oldest=oldest,
        oldest_of_recoveries=oldest_of_recoveries,
    )


class _Explainer:
    """Sessions in order, and what was disturbed."""

    def __init__(
        self, sessions: Sequence[Session], closed: Sequence[Closed], disturbances: Sequence[Done]
    ) -> None:
        self._sessions = sessions
        self._closed = closed
        self._starts = [s.at for s in sessions]
        self._disturbances = sorted(disturbances, key=lambda d: d.start)
        self._windows: dict[int, float | None] = {}

    def session_of(self, at: float) -> int:
        """The place of the session that was under way, -1 if none was."""
        return bisect_right(self._starts, at + _ROUNDED_S) - 1

    def recovered(self, repeat: Repeat) -> bool:
        """Whether it was sent again because the slot was lost."""
        number = self.session_of(repeat.later)
        return number >= 0 and self._sessions[number].lost

    def age(self, repeat: Repeat) -> tuple[float, str]:
        """How long before its disturbance the earlier copy was sent, infinite if there was none."""
        number = self.session_of(repeat.earlier)
        if number < 0:
            return float("inf"), "sent before any relay became the one that writes"
        if self._left_over(repeat):
            return 0.0, "left over of a relay that was frozen"
        if number == self.session_of(repeat.later):
            return float("inf"), "sent twice by relays that wrote at the same time"
        if number not in self._windows:
            self._windows[number] = self._window(number)
        window = self._windows[number]
        if window is None:
            return float("inf"), "sent again although nothing was disturbed"
        age = window - repeat.earlier
        return age, f"its first copy was sent {age * 1000:.0f} ms before the disturbance"

    def sent(self, number: int, every: Sequence[float], bound_s: float) -> int:
        """How many of these times lie between the last moments before the disturbance and the next session."""
        window = self._windows.get(number)
        if window is None:
            return 0
        over = self._sessions[number + 1].at
        return bisect_left(every, over) - bisect_left(every, window - bound_s - _ROUNDED_S)

    def _left_over(self, repeat: Repeat) -> bool:
        """What a frozen relay had read is written when it wakes up."""
        return any(
            d.do.startswith("freeze")
            and d.who in RELAYS
            and d.start < repeat.later < d.end + _LEFTOVER_S
            for d in self._disturbances
        )

    def _window(self, number: int) -> float | None:
        """When the disturbance began that ended this session."""
        session, successor = self._sessions[number : number + 2]
        over = self._end(session, successor.at)
        relevant = [
            d for d in self._disturbances if d.start <= over and _concerns(d, session.relay)
        ]
        if not relevant:
            return None
        window = relevant[-1].start
        while reaching := [d for d in relevant if d.start < window <= d.end + _grace(d)]:
            window = min(d.start for d in reaching)
        return window

    def _end(self, session: Session, successor: float) -> float:
        """When it was over at the latest: its relay was killed, had given up, or another one had begun."""
        ends = [d.start for d in self._disturbances if d.do in ENDS and d.who == session.relay]
        ends += [end.at for end in self._closed if end.relay == session.relay]
        return min((end for end in ends if session.at < end < successor), default=successor)


def _grace(disturbance: Done) -> float:
    return _SERVER_GRACE_S if disturbance.who in ("kafka", "postgres") else _GRACE_S


def _concerns(disturbance: Done, relay: str) -> bool:
    """Whether it can have ended what this relay did; a frozen relay of any name may write late."""
    if disturbance.who in RELAYS:
        return disturbance.who == relay or disturbance.do.startswith("freeze")
    return disturbance.who in ("kafka", "postgres") or disturbance.do in THEFTS
