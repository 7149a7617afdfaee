"""Outcomes into PostgreSQL, many in one statement; what cannot be written now is kept until it is."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from streams.domain.attempts import Recorded
from streams.ports.sender import Outbox
from streams.runtime import metrics
from streams.sending.pointer_intake import PointerIntake
from streams.sending.signals import Signal
from streams.sending.work import Done

log = logging.getLogger(__name__)

MOST: Final = 200
IDLE_S: Final = 0.5
# A claim that the server still had to do when its answer was lost may happen after it was given back: it is given back
# again after so long.
ECHOES_S: Final = (2.0, 10.0, 40.0)


class OutcomeWriter:
    """add() never waits. A pointer is finished once its outcome is durable."""

    def __init__(self, *, outbox: Outbox, intake: PointerIntake) -> None:
        self._outbox = outbox
        self._intake = intake
        self._waiting: deque[Done] = deque()
        self._echoes: list[tuple[float, Done]] = []
        self._writing = 0
        self._lost = 0
        self._news = Signal()
        self.on_written: Callable[[], None] = lambda: None

    def add(self, done: Done) -> None:
        self._waiting.append(done)
        self._lost += done.lost
        metrics.SENDER_OUTCOMES.labels(kind=done.outcome.kind).inc()
        self._news.set()

    @property
    def unwritten(self) -> int:
        """Outcomes that are not durable yet."""
        return len(self._waiting) + self._writing

    @property
    def owes_releases(self) -> bool:
        """Whether claims whose answer was lost are still to be given back: until then nothing is claimed."""
        return self._lost > 0

    async def write(self) -> float:
        """Writes what there is in one statement; all of it is kept if that fails."""
        self._repeat_releases()
        if not self._waiting:
            await self._news.wait(IDLE_S)
            return 0.0
        batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
        self._writing = len(batch)
        try:
            for pause in {done.pause for done in batch if done.pause is not None}:
                await self._outbox.pause(pause)
                log.warning(
                    "sending is paused",
                    extra={"action": "sender.paused", "scope": pause.scope, "reason": pause.reason},
                )
            recorded = await self._outbox.record([done.outcome for done in batch])
        except BaseException:
            self._waiting.extendleft(reversed(batch))
            raise
        finally:
            self._writing = 0
        for done in batch:
            self._written(done, recorded[done.outcome.attempt_id])
        self.on_written()
        return 0.0

    def _written(self, done: Done, recorded: Recorded) -> None:
        if done.lost:
            self._lost -= 1
        elif not done.echo:
            metrics.SENDER_RECORDED.labels(recorded=recorded).inc()
        if recorded is Recorded.APPLIED or not (done.lost or done.echo):
            self._intake.finish(done.pointer)
        elif done.lost:  # the claim did not happen, or not yet
            self._intake.put_back([done.pointer])
            echo = replace(done, lost=False, echo=True)
            self._echoes += [(time.monotonic() + wait, echo) for wait in ECHOES_S]

    def _repeat_releases(self) -> None:
        now = time.monotonic()
        due = {done.outcome.attempt_id: done for at, done in self._echoes if at <= now}
        self._echoes = [(at, done) for at, done in self._echoes if at > now]
        self._waiting.extend(due.values())
