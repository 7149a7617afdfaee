"""What becomes of a claimed row whose call has ended or was not made."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from streams.domain.attempts import Outcome, Pause
from streams.domain.errors import Unavailable
from streams.domain.outcomes import released
from streams.domain.pacing import Pace
from streams.runtime import metrics
from streams.sending.circuit import Circuit
from streams.sending.last_look import Look
from streams.sending.retrials import WAIT_S
from streams.sending.work import Done, Work

log = logging.getLogger(__name__)

UNMARKED_S: Final = 5.0


class Ends:
    """What ends is handed to `done`; what missed its slot waits in `missed` for another one."""

    def __init__(self, *, pace: Pace, circuit: Circuit) -> None:
        self.done: Callable[[Done], None] = lambda _: None
        self.missed: list[Work] = []
        self.closing = False
        self._pace = pace
        self._circuit = circuit

    def close(self) -> None:
        """From now on what needs another slot is given back."""
        self.closing = True
        for work in self.missed:
            self.release(work, Look.STOPPING)
        self.missed.clear()

    def open(self) -> None:
        self.closing = False

    def end(self, work: Work, outcome: Outcome, pause: Pause | None = None) -> None:
        """With this outcome; pause: what has to stop because of it."""
        work.is_over = True
        self.done(Done(outcome=outcome, pointer=work.pointer, pause=pause))

    def release(self, work: Work, look: Look, *, delay_s: float = 0.0) -> None:
        """It is given back."""
        log.info(
            "claim is given back, SES was not called",
            extra={"action": "sender.released", "outbox_id": str(work.email.id), "why": look},
        )
        self.unused(work)
        delay_s = WAIT_S if look is Look.TRIED else delay_s
        self.end(work, released(work.email, finished=datetime.now(UTC), delay_s=delay_s))

    def not_noted(self, works: Sequence[Work], error: Unavailable) -> None:
        """The beginning of their call could not be noted, so that it was not made."""
        log.error(
            "call is not made, since its beginning could not be noted",
            extra={"action": "sender.not_noted", "error": str(error)},
        )
        for work in works:
            self.release(work, Look.JOURNAL, delay_s=UNMARKED_S)

    def unused(self, work: Work) -> None:
        """Its call is not made: if it was to be a probe, another one may be."""
        if work.is_probe:
            work.is_probe = False
            self._circuit.unused()

    def miss(self, work: Work, *, late: bool) -> None:
        """It needs another slot. late: by our own slowness, and not because calls were held back."""
        if late:
            self._pace.missed(time.monotonic())
        metrics.SENDER_PERMITS.labels(use="void").inc(work.pointer.recipients)
        if self.closing:
            self.release(work, Look.STOPPING)
        else:
            self.unused(work)
            work.is_over = True
            self.missed.append(work)
