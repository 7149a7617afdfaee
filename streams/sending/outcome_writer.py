"""Outcomes into PostgreSQL, many in one statement; what cannot be written now is kept until it is."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from streams.domain.attempts import AttemptId, Outcome, OutcomeKind, Recorded
from streams.ports.sender import AttemptJournal, Outbox
from streams.runtime import metrics
from streams.sending.pointer_intake import PointerIntake
from streams.sending.signals import Signal
from streams.sending.work import Done

log = logging.getLogger(__name__)

MOST: Final = 200
IDLE_S: Final = 0.5
# A claim that the server still had to do when its answer was lost may happen after it was given back: it is given back
# again after so long, each time counted from the one before.
REPEATS_S: Final = (2.0, 8.0, 30.0, 60.0)


class OutcomeWriter:
    """add() never waits. A pointer is finished, and the attempt closed in the journal, once the outcome is durable."""

    def __init__(self, *, outbox: Outbox, intake: PointerIntake, journal: AttemptJournal) -> None:
        self._outbox = outbox
        self._intake = intake
        self._journal = journal
        self._waiting: deque[Done] = deque()
        self._repeats: list[tuple[float, Done]] = []
        self._writing = 0
        self._owed = 0
        self._news = Signal()
        self.on_written: Callable[[], None] = lambda: None

    def add(self, done: Done) -> None:
        if done.outcome.started is not None:
            self._journal.answered(done.outcome)
        self._waiting.append(done)
        self._owed += done.lost
        metrics.SENDER_OUTCOMES.labels(kind=done.outcome.kind).inc()
        self._news.set()

    def inherit(self, outcomes: Sequence[Outcome]) -> None:
        """What a dead process left, each once. Its claims may still happen, so that releases of them are repeated."""
        known = {done.outcome.attempt_id for done in self._waiting}
        new = [outcome for outcome in outcomes if outcome.attempt_id not in known]
        for outcome in new:
            metrics.SENDER_JOURNAL_REPLAYED.labels(kind=outcome.kind).inc()
            lost = outcome.kind is OutcomeKind.RELEASED
            self._waiting.append(Done(outcome=outcome, pointer=None, lost=lost, inherited=True))
        self._owed += len(new)
        self._news.set()

    @property
    def unwritten(self) -> int:
        """Outcomes that are not durable yet."""
        return len(self._waiting) + self._writing

    @property
    def owes(self) -> bool:
        """Whether lost claims are to be given back, or a dead process's attempts to be written: until then nothing is claimed."""
        return self._owed > 0

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
        self._journal.closed(
            [o.attempt_id for o in (d.outcome for d in batch if self._written(d, recorded))]
        )
        self.on_written()
        return 0.0

    def _written(self, done: Done, all_recorded: Mapping[AttemptId, Recorded]) -> bool:
        """Takes note of what became of it; whether nothing more is to be done for the attempt."""
        recorded = all_recorded[done.outcome.attempt_id]
        first = done.repeat == 0
        if first:
            self._owed -= done.lost or done.inherited
        if first and not done.lost:
            metrics.SENDER_RECORDED.labels(recorded=recorded).inc()
        if recorded is Recorded.APPLIED or not done.lost:
            if done.pointer is not None:
                self._intake.finish(done.pointer)
            return True
        if first and done.pointer is not None:  # the claim did not happen, or not yet
            self._intake.put_back([done.pointer])
        if done.repeat == len(REPEATS_S):
            return True
        at = time.monotonic() + REPEATS_S[done.repeat]
        self._repeats.append((at, replace(done, repeat=done.repeat + 1)))
        return False

    def _repeat_releases(self) -> None:
        now = time.monotonic()
        due = [done for at, done in self._repeats if at <= now]
        self._repeats = [(at, done) for at, done in self._repeats if at > now]
        self._waiting.extend(due)
