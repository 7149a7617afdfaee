"""Claimed rows through their slots to SES, many at a time, one a recipient."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from streams.domain.attempts import Outcome, OutcomeKind
from streams.domain.backoff import throttle_delay_s
from streams.domain.errors import Unavailable
from streams.domain.journal_records import Begin
from streams.domain.outcomes import (
    STALE_CREDENTIALS,
    UNREACHED,
    delay_of,
    outcome_of_call,
    pause_of,
    released,
    uncharged,
)
from streams.domain.pacing import Pace
from streams.domain.ses_answers import Answer, Fault, FaultKind, Missed
from streams.domain.ses_errors import Meaning, meaning
from streams.domain.ses_tenants import SesTenants
from streams.ports.attachments import AttachmentSource
from streams.ports.sender import AttemptJournal, EmailProvider, SuppressionGuard
from streams.runtime import metrics
from streams.sending.circuit import Circuit
from streams.sending.last_look import Look, last_look, lease_clock
from streams.sending.retrials import Retrials
from streams.sending.signals import Signal
from streams.sending.signing import Requests
from streams.sending.trouble import Trouble
from streams.sending.work import Done, Work

log = logging.getLogger(__name__)

# What fails before its call in a way that nobody foresaw is looked at again so late: it must not fill the process.
FAULTY_S: Final = 60.0
UNMARKED_S: Final = 5.0
# A row whose call was held back for so long is given back: its claim was too long ago.
LONGEST_HOLD_S: Final = 5.0


class NotBegun(Exception):
    """The call must not begin, for this reason."""

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.look = look


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """most: calls at a time; call_s: the longest that one may take."""

    configuration_set: str
    most: int
    call_s: float
    tenants: SesTenants = field(default_factory=SesTenants)
    attachment_s: float = 10.0


class Calls:
    """start() never waits. What ends is handed to `done`; what missed its slot waits in `missed` for another one."""

    def __init__(
        self,
        settings: CallSettings,
        *,
        provider: EmailProvider,
        guard: SuppressionGuard,
        journal: AttemptJournal,
        circuit: Circuit,
        work: Signal,
        now: Callable[[], float],
        attachments: AttachmentSource | None = None,
    ) -> None:
        self.missed: list[Work] = []
        self.pace = Pace(settings.most)
        self.done: Callable[[Done], None] = lambda _: None
        self._settings = settings
        self._provider = provider
        self._guard = guard
        self._journal = journal
        self._circuit = circuit
        self._requests = Requests(
            provider=provider,
            configuration_set=settings.configuration_set,
            tenants=settings.tenants,
            attachments=attachments,
            attachment_s=settings.attachment_s,
        )
        self._retrials = Retrials()
        self.trouble = Trouble()
        self._work = work
        self._now = now
        self._tasks: dict[asyncio.Task[None], Work] = {}
        self._closing = False
        self._throttled_until = 0.0
        self._throttles = 0

    @property
    def room(self) -> int:
        """How many more rows may be claimed."""
        if not self._circuit.has_room:
            return 0
        return self._settings.most - len(self._tasks) - len(self.missed)

    @property
    def backing_off_s(self) -> float:
        """SES throttled us: so long nothing new should be asked for."""
        return max(self._throttled_until - time.monotonic(), 0.0)

    def start(self, work: Work) -> None:
        task = asyncio.create_task(self._attempt(work))
        self._tasks[task] = work
        task.add_done_callback(self._ended)
        metrics.SENDER_IN_FLIGHT.set(len(self._tasks))

    def close(self) -> None:
        """From now on no call begins: what waits for its slot is given back."""
        self._closing = True
        for work in self.missed:
            self._release(work, Look.STOPPING)
        self.missed.clear()

    def open(self) -> None:
        self._closing = False

    @property
    def idle(self) -> bool:
        return not self._tasks

    def abandon(self) -> None:
        """Stops waiting for answers: what is under way is left to its lease, or to whoever opens the journal next."""
        for task in self._tasks:
            task.cancel()

    # One row ----------------------------------------------------------------------------------------------------------

    async def _attempt(self, work: Work) -> None:
        try:
            await self._prepare_and_call(work)
        finally:
            self._circuit.leave(work.email.attempt_id)
            self._retrials.leave(work.email.attempt_id)

    async def _prepare_and_call(self, work: Work) -> None:
        if work.call is None and not await self._sign(work):
            return
        if work.granted_at is not None:
            if not work.email.attachments:  # what fetching takes says nothing of the others
                self.pace.prepared(time.monotonic() - work.granted_at)
            work.granted_at = None
        await asyncio.sleep(max(work.slot.earliest - time.monotonic(), 0.0))
        held_from = time.monotonic()
        if not await self._circuit.enter(work.email.attempt_id, patience_s=LONGEST_HOLD_S):
            self._release(work, Look.CIRCUIT)
            return
        look = self._look(work)
        if look is Look.GO:
            await self._call(work)
        elif look is Look.MISSED:
            late = held_from > work.slot.latest and not work.email.attachments
            self._miss(work, late=late)
        else:
            self._release(work, look)

    async def _sign(self, work: Work) -> bool:
        found = await self._requests.sign(work)
        match found:
            case Outcome():
                self._end(work, found, None)
            case Fault():
                self._judge(work, found, datetime.now(UTC))
            case signed:
                work.call = signed
                return True
        self._unused(work)
        return False

    def _look(self, work: Work) -> Look:
        if self._closing:
            return Look.STOPPING
        if self._circuit.is_open and not work.is_probe:
            return Look.CIRCUIT
        look = last_look(work, guard=self._guard, now=self._now)
        if look is Look.GO and not self._retrials.enter(work.email):
            return Look.TRIED
        return look

    def _begin(self, work: Work, started: datetime) -> None:
        """Right before the first byte. What it raises keeps the call from being made."""
        if lease_clock() > work.begin_by:
            raise NotBegun(Look.LEASE)
        email = work.email
        # A connection was waited for since the last look, and suppressions may have come in.
        hit = self._guard.hit(work.pointer.partition, email.recipient_key, email.tenant, email.lane)
        if hit not in (None, work.overruled):
            raise NotBegun(Look.SUPPRESSED)
        self._journal.begun(
            Begin(
                attempt_id=email.attempt_id,
                number=email.attempt,
                started=started,
                left_out=email.left_out,
            )
        )
        work.begin()

    async def _call(self, work: Work) -> None:
        call = work.call
        if call is None:
            raise RuntimeError("a call is signed before it is made")
        started, begun = datetime.now(UTC), time.monotonic()
        try:
            seen = await self._provider.send(
                call,
                latest=work.slot.latest,
                within_s=self._settings.call_s,
                on_begin=lambda: self._begin(work, started),
            )
        except NotBegun as refused:
            self._release(work, refused.look)
            return
        except Unavailable as error:
            log.error(
                "call is not made, since its beginning could not be noted",
                extra={"action": "sender.not_noted", "error": str(error)},
            )
            self._release(work, Look.JOURNAL, delay_s=UNMARKED_S)
            return
        if isinstance(seen, Missed):
            self._miss(work, late=True)
            return
        self.pace.met()
        self._observe(work, started, begun)
        self._judge(work, seen, started, begun=begun)

    def _observe(self, work: Work, started: datetime, begun: float) -> None:
        metrics.SENDER_CALL_SECONDS.observe(time.monotonic() - begun)
        metrics.SENDER_CALL_WINDOW.observe(begun - work.claimed_at)
        late = (started - work.pointer.due).total_seconds()
        metrics.SENDER_CALL_LATENCY.observe(max(late, 0.0))

    def _judge(
        self, work: Work, seen: Answer | Fault, started: datetime, *, begun: float | None = None
    ) -> None:
        email = work.email
        meant = meaning(seen, sender=email.sender, addresses=email.addresses)
        meant, waits_s = self._learn(work, meant, begun=begun)
        outcome = outcome_of_call(
            email,
            seen,
            meant,
            started=started,
            finished=datetime.now(UTC),
            delay_s=delay_of(meant, waits_s=waits_s),
        )
        if outcome.error_class is not None:
            metrics.SENDER_ERRORS.labels(error_class=outcome.error_class).inc()
        self._end(work, outcome, meant)

    def _learn(self, work: Work, meant: Meaning, *, begun: float | None) -> tuple[Meaning, float]:
        """What the answer says beyond its message; the meaning that is written, and the wait until it is tried again."""
        row, email = meant.row, work.email
        if row.name in STALE_CREDENTIALS:
            self._provider.forget_credentials()
        passed = row.kind in (OutcomeKind.ACCEPTED, OutcomeKind.PERMANENT)
        pause = pause_of(email, meant)
        self._retrials.learn(email, pause, passed=passed)
        is_unwritten = row.name in UNREACHED
        self.trouble.learn(email, meant, pause, unreached=is_unwritten)
        if is_unwritten or row.kind is OutcomeKind.UNKNOWN:
            charged = self._circuit.failed(email.id, reason=row.reason, is_unwritten=is_unwritten)
            if is_unwritten:
                return (meant if charged else uncharged(meant)), self._circuit.delay_s(
                    email.attempt
                )
        elif begun is not None:
            self._circuit.reached(begun=begun)
        return meant, self._throttle(row.kind)

    def _throttle(self, kind: OutcomeKind) -> float:
        """Slows down after a throttled answer, once an episode; how long a throttled message waits."""
        throttling = self._throttled_until > time.monotonic()
        if kind is OutcomeKind.ACCEPTED and not throttling:
            self._throttles = 0
        if kind is OutcomeKind.THROTTLED and not throttling:
            self._throttles += 1
            pause = throttle_delay_s(self._throttles, random.random())  # noqa: S311 jitter is no secret
            self._throttled_until = time.monotonic() + pause
        return throttle_delay_s(max(self._throttles, 1), random.random())  # noqa: S311 jitter is no secret

    # Ends -------------------------------------------------------------------------------------------------------------

    def _end(self, work: Work, outcome: Outcome, meant: Meaning | None) -> None:
        pause = None if meant is None else pause_of(work.email, meant)
        self.done(Done(outcome=outcome, pointer=work.pointer, pause=pause))

    def _release(self, work: Work, look: Look, *, delay_s: float = 0.0) -> None:
        log.info(
            "claim is given back, SES was not called",
            extra={"action": "sender.released", "outbox_id": str(work.email.id), "why": look},
        )
        self._unused(work)
        delay_s = self._retrials.delay_s if look is Look.TRIED else delay_s
        self._end(work, released(work.email, finished=datetime.now(UTC), delay_s=delay_s), None)

    def _unused(self, work: Work) -> None:
        if work.is_probe:
            work.is_probe = False
            self._circuit.unused()

    def _miss(self, work: Work, *, late: bool) -> None:
        """late: by our own slowness, and not because calls were held back."""
        if late:
            self.pace.missed(time.monotonic())
        metrics.SENDER_PERMITS.labels(use="void").inc(work.pointer.recipients)
        if self._closing:
            self._release(work, Look.STOPPING)
        else:
            self._unused(work)
            self.missed.append(work)

    def _ended(self, task: asyncio.Task[None]) -> None:
        work = self._tasks.pop(task)
        metrics.SENDER_IN_FLIGHT.set(len(self._tasks))
        self._work.set()
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        # A bug of ours. Once the call had begun, nothing is proven.
        log.error(
            "call failed in a way nobody foresaw",
            extra={"action": "sender.call_failed", "outbox_id": str(work.email.id)},
            exc_info=error,
        )
        if work.begun:
            self._judge(work, Fault(kind=FaultKind.BROKEN, written=True), datetime.now(UTC))
        else:
            self._release(work, Look.FAULTY, delay_s=FAULTY_S)
