"""Permits of the shared rate: asks for them, tells with each question how calls ended, and knows why none are granted."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from streams.domain.circuit import ProbeIntervals
from streams.domain.pacing import Allowance, Pace
from streams.domain.pointers import Pointer
from streams.ports.sender import Outbox
from streams.runtime import metrics
from streams.sending.circuit import Circuit

log = logging.getLogger(__name__)

# Work that waits for longer than that without a permit is a thing to be told.
STARVING_S: Final = 5.0
# Who has nothing to send asks so often whether the circuit is closed again.
LEARN_EVERY_S: Final = 5.0


class Permits:
    """One question at a time."""

    def __init__(
        self, *, outbox: Outbox, circuit: Circuit, pace: Pace, intervals: ProbeIntervals
    ) -> None:
        self.scope = ""
        self.rate_known = True
        self._outbox = outbox
        self._circuit = circuit
        self._pace = pace
        self._intervals = intervals
        self._starving_since: float | None = None
        self._asked_at = float("-inf")

    async def take(self, pointers: Sequence[Pointer]) -> Allowance | None:
        """Permits for the first of these; None while the rate is not known. None at all: only tells."""
        terms = self._pace.terms
        report = self._circuit.take_report()
        self._asked_at = time.monotonic()
        try:
            answer = await self._outbox.take_permits(
                self.scope,
                [terms.cost(p.recipients) for p in pointers],
                lead_s=self._pace.lead_s,
                report=report,
                intervals=self._intervals,
            )
        except BaseException:
            self._circuit.give_back(report)
            raise
        self.rate_known = answer is not None
        if answer is None:
            self._circuit.give_back(report)
            return None
        grant, clock, state = answer
        if grant.was_ahead:
            log.warning(
                "row of the rate was ahead of the server's clock, it counts from now",
                extra={"action": "sender.rate_was_ahead", "scope": self.scope},
            )
        self._circuit.learn(state)
        metrics.SENDER_PERMITS.labels(use="granted").inc(grant.permits)
        if grant.messages or self._circuit.is_open:
            self._starving_since = None
        elif pointers and self._starving_since is None:
            self._starving_since = time.monotonic()
        return Allowance(grant=grant, clock=clock, terms=terms, is_probe=state.probe is not None)

    @property
    def has_question(self) -> bool:
        """Whether to ask without a message: there is news for the others, or they may know that SES works again."""
        since = time.monotonic() - self._asked_at
        return self._circuit.has_news or (self._circuit.is_open and since > LEARN_EVERY_S)

    def not_wanted(self) -> None:
        """There is nothing to send."""
        self._starving_since = None

    @property
    def starving(self) -> str | None:
        """Why readiness is to say that permits are missing; None if they are not."""
        since = self._starving_since
        if since is None or time.monotonic() - since <= STARVING_S:
            return None
        return (
            f"no permit of {self.scope} was granted for more than {STARVING_S:g} s while messages wait: "
            "see whether send_rate.per_second is right, and whether next_free is far ahead of the server's clock"
        )
