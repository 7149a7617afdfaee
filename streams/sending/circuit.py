"""What this process knows of the circuit, and how many calls may be under way while no answer tells that SES works."""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import UUID

from streams.domain.backoff import throttle_delay_s, unreachable_delay_s
from streams.domain.circuit import CLOSED, NOTHING, REACHED, CircuitState, Report, explanation
from streams.runtime import metrics

log = logging.getLogger(__name__)

# Calls that may have begun, in this process, since SES was last known to work. Every answer of SES lets as many more begin,
# and twice as many where all of them had and it took SLOW_S, so that an SES that answers slowly gets all the calls that it
# may have. A window that was not needed for UNNEEDED_S is halved again.
UNANSWERED: Final = 6
SLOW_S: Final = 0.25
UNNEEDED_S: Final = 10.0
# Failures that the other senders were not told of: so many at the most before a further call begins, so that all together
# stop soon after the one that opens the circuit.
UNTOLD: Final = 3


class Circuit:
    """Counts how calls end, reports it with the next question for permits, and holds calls back while nothing is answered."""

    def __init__(self, scope: str = "", *, most: int = UNANSWERED, soon: int = UNANSWERED) -> None:
        """most: the largest window. soon: that of an SES that answers soon, more where several begin as one."""
        self.scope = scope
        self._most = most
        self._soon = min(soon, most)
        self._window = UNANSWERED
        self._needed_at = 0.0
        self._state = CLOSED
        self._learnt_at = 0.0
        # The number of the last probe that this process was granted.
        self._probe = 0
        self._report = NOTHING
        self._telling = 0
        self._reached_at = self._began_at = 0.0
        self._unanswered: set[UUID] = set()
        self._closing = False
        self._changed = asyncio.Event()
        # Failures in a row: how many, of one message alone or of several, in how many rounds.
        self._failing = 0
        self._first: UUID | None = None
        self._shared = False
        self._rounds = 0
        self._round_until = 0.0

    # Before a call ----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._state.open_since is not None

    @property
    def why(self) -> str | None:
        """Why nothing is claimed; None if the circuit is closed."""
        return explanation(self._state, self.scope)

    @property
    def room(self) -> int:
        """How many more calls may begin; at fewer and fewer at a time while calls fail in a row."""
        if len(self._report.failed) + self._telling >= UNTOLD:
            return 0
        failing = max(self._failing, self._state.failing)
        return max(max(self._window - failing, 1) - len(self._unanswered), 0)

    @property
    def has_room(self) -> bool:
        """Whether another call may begin."""
        return self.room > 0

    async def enter(self, attempt_id: UUID, *, patience_s: float) -> bool:
        """Counts a call that is about to begin; waits for room so long. False if there was none."""
        return await self.enter_some([attempt_id], patience_s=patience_s) == 1

    async def enter_some(self, attempt_ids: Sequence[UUID], *, patience_s: float) -> int:
        """Counts the first of the attempts that are to begin together, and says how many there was room for.

        While calls are closed nobody waits.
        """
        deadline = time.monotonic() + patience_s
        while not (room := self.room):
            if self._closing or (left := deadline - time.monotonic()) <= 0:
                return 0
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        entering = attempt_ids[:room]
        self._unanswered.update(entering)
        return len(entering)

    def close(self) -> None:
        """No call begins any more: what waits for room learns it at once."""
        self._closing = True
        self._wake()

    def open(self) -> None:
        self._closing = False

    def leave(self, attempt_id: UUID) -> None:
        """The call has ended, or was not made."""
        if attempt_id in self._unanswered:
            self._unanswered.discard(attempt_id)
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # After a call -----------------------------------------------------------------------------------------------------

    def reached(self, *, begun: float) -> None:
        """SES answered a call that had begun then (monotonic). One from before the circuit opened does not close it."""
        if self.is_open and begun < self._learnt_at:
            return
        self._reached_at, self._began_at = time.monotonic(), max(begun, self._began_at)
        self._failing, self._first, self._shared, self._rounds = 0, None, False, 0
        if self._report is not REACHED:
            self._report = self._report.then(REACHED)
            if self._report == REACHED:
                self._report = REACHED
        self._resize(self._reached_at, took_s=self._reached_at - begun)
        self._unanswered.clear()
        self._wake()

    def _resize(self, now: float, *, took_s: float) -> None:
        if len(self._unanswered) >= self._window:
            most = self._most if took_s >= SLOW_S else self._soon
            self._window = max(self._window, min(self._window * 2, most))
            self._needed_at = now
        elif self._window > UNANSWERED and now - self._needed_at > UNNEEDED_S:
            self._window = max(self._window // 2, UNANSWERED)
            self._needed_at = now

    def failed(
        self, message: UUID, *, reason: str, is_unwritten: bool, is_probe: bool = False
    ) -> bool:
        """A call ended unknown, or never left; whether one that never left is charged to its message.

        One message alone is charged for each, so that it ends. Where others fail likewise it is not theirs, and none is
        charged: only their expires_at ends them.
        """
        self._failing += 1
        self._window = UNANSWERED
        self._shared = self._shared or self.is_open or (self._first or message) != message
        self._first = self._first or message
        if time.monotonic() >= self._round_until:  # those that fail together count once
            self._rounds += 1
            pause = throttle_delay_s(self._rounds, random.random())  # noqa: S311 jitter is no secret
            self._round_until = time.monotonic() + pause
        self._report = self._report.then(
            Report(
                failed=(message,),
                reason=reason,
                is_unwritten=is_unwritten,
                failed_probe=self._probe if is_probe else None,
            )
        )
        return not self._shared

    def delay_s(self, attempt: int) -> float:
        """Until a message is to be tried again whose attempt of this number (from 1) never left."""
        return unreachable_delay_s(max(self._rounds, attempt), random.random())  # noqa: S311 jitter is no secret

    def unused(self) -> None:
        """The probe that was granted will not be made: another may be."""
        self._report = self._report.then(Report(unused_probe=self._probe))

    # Telling and learning ---------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether the others should know at once."""
        report = self._report
        return (
            bool(report.failed)
            or report.unused_probe is not None
            or (self.is_open and report.reached)
        )

    def take_report(self) -> Report:
        """What is to be told now; give_back() if it could not be."""
        report, self._report = self._report, NOTHING
        self._telling = len(report.failed)
        now = time.monotonic()
        return replace(
            report, reached_ago_s=now - self._reached_at, began_ago_s=now - self._began_at
        )

    def give_back(self, report: Report) -> None:
        self._report = report.then(self._report)
        self._telling = 0

    def learn(self, state: CircuitState) -> None:
        """What all senders know after our report."""
        before, self._state, self._telling = self._state, state, 0
        self._shared = self._shared or state.failing_messages > 1
        if state.failing == 0 and not self._report.failed:
            self._failing, self._first, self._shared = 0, None, False
        metrics.SENDER_CIRCUIT_OPEN.set(state.open_since is not None)
        where = {"scope": self.scope, "reason": state.reason}
        if state.has_opened:
            metrics.SENDER_CIRCUIT_OPENED.inc()
            log.error(
                "SES fails for message after message, only probes are sent",
                extra={"action": "sender.circuit_opened", "failing": state.failing, **where},
            )
        if state.probe is not None:
            self._probe = state.probe
            metrics.SENDER_PROBES.inc()
            log.info("a probe is sent", extra={"action": "sender.probe", **where})
        if state.open_since is not None and before.open_since != state.open_since:
            self._learnt_at = time.monotonic()
        if before.open_since is not None and state.open_since is None:
            log.warning(
                "SES works again, sending goes on",
                extra={"action": "sender.circuit_closed", "scope": self.scope},
            )
        self._wake()
