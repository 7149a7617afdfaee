"""Claimed rows through their slots to SES, many at a time, one a recipient."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from streams.domain.attempts import Outcome
from streams.domain.errors import Unavailable
from streams.domain.pacing import Pace
from streams.domain.ses_answers import Fault, FaultKind, Missed
from streams.domain.ses_tenants import SesTenants
from streams.ports.attachments import AttachmentSource
from streams.ports.sender import AttemptJournal, EmailProvider, SuppressionGuard
from streams.runtime import metrics
from streams.sending.bulk_calls import BulkCalls
from streams.sending.circuit import Circuit
from streams.sending.ends import Ends
from streams.sending.first_byte import FirstByte, NotBegun
from streams.sending.judging import Judging
from streams.sending.last_look import LONGEST_HOLD_S, Look, last_look
from streams.sending.retrials import Retrials
from streams.sending.signals import Signal
from streams.sending.signing import Requests
from streams.sending.trouble import Trouble
from streams.sending.work import Work

log = logging.getLogger(__name__)

# What fails before its call in a way that nobody foresaw is looked at again so late: it must not fill the process.
FAULTY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """most: messages whose calls are under way at a time; call_s: the longest that one call may take.

    bulk: messages of the bulk lane may share a SendBulkEmail.
    """

    configuration_set: str
    most: int
    call_s: float
    tenants: SesTenants = field(default_factory=SesTenants)
    attachment_s: float = 10.0
    bulk: bool = False


class Calls:
    """start() never waits. What becomes of each stands in `ends`."""

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
        self.pace = Pace(settings.most)
        self.ends = Ends(pace=self.pace, circuit=circuit)
        self._settings = settings
        self._provider = provider
        self._guard = guard
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
        self._judging = Judging(
            provider=provider,
            circuit=circuit,
            retrials=self._retrials,
            trouble=self.trouble,
            end=self.ends.end,
        )
        self._first_byte = FirstByte(guard=guard, journal=journal)
        self._work = work
        self._now = now
        # Of a bulk call all its messages.
        self._tasks: dict[asyncio.Task[None], list[Work]] = {}
        self._abandoned = False
        self._bulk = (
            BulkCalls(
                self,
                requests=self._requests,
                judging=self._judging,
                ends=self.ends,
                first_byte=self._first_byte,
                provider=provider,
                circuit=circuit,
                call_s=settings.call_s,
            )
            if settings.bulk
            else None
        )

    @property
    def room(self) -> int:
        """How many more rows may be claimed."""
        if not self._circuit.has_room:
            return 0
        return self._settings.most - self._under_way - len(self.ends.missed)

    @property
    def _under_way(self) -> int:
        return sum(map(len, self._tasks.values()))

    @property
    def backing_off_s(self) -> float:
        """SES throttled us: so long nothing new should be asked for."""
        return self._judging.backing_off_s

    def start(self, *works: Work) -> None:
        """Each on its own, or where they may share a call, together."""
        groups = [[work] for work in works] if self._bulk is None else self._bulk.groups(works)
        for group in groups:
            self.start_together(group)

    def start_together(self, works: list[Work]) -> None:
        """One call for all of them. What is taken out of the list is not its affair any more."""
        for work in works:
            work.is_over = False
        if self._bulk is None or len(works) == 1:
            task = asyncio.create_task(self._attempt(works[0]))
        else:
            task = asyncio.create_task(self._bulk.attempt(works))
        self._tasks[task] = works
        task.add_done_callback(self._ended)
        metrics.SENDER_IN_FLIGHT.set(self._under_way)

    def close(self) -> None:
        """From now on no call begins: what waits for its slot, or for room in the circuit, is given back."""
        self.ends.close()
        self._circuit.close()

    def open(self) -> None:
        self._abandoned = False
        self.ends.open()
        self._circuit.open()

    @property
    def idle(self) -> bool:
        return not self._tasks

    def abandon(self) -> None:
        """Stops waiting for answers: what is under way is left to its lease, or to whoever opens the journal next."""
        self._abandoned = True
        for task in self._tasks:
            task.cancel()

    # One row ----------------------------------------------------------------------------------------------------------

    async def _attempt(self, work: Work) -> None:
        try:
            await self._prepare_and_call(work)
        finally:
            self.leave(work)

    def leave(self, work: Work) -> None:
        """It counts as under way no more."""
        self._circuit.leave(work.email.attempt_id)
        self._retrials.leave(work.email.attempt_id)

    def prepared(self, work: Work) -> None:
        """Its call could begin now, if its slot did."""
        if work.granted_at is not None:
            if not work.email.attachments:  # what fetching takes says nothing of the others
                self.pace.prepared(time.monotonic() - work.granted_at)
            work.granted_at = None

    async def _prepare_and_call(self, work: Work) -> None:
        if work.call is None and not await self._sign(work):
            return
        self.prepared(work)
        await asyncio.sleep(max(work.slot.earliest - time.monotonic(), 0.0))
        held_from = time.monotonic()
        if not await self._circuit.enter(work.email.attempt_id, patience_s=LONGEST_HOLD_S):
            self.ends.release(work, Look.CIRCUIT)
        elif self.passes(work, held_from=held_from):
            await self._call(work)

    async def call_alone(self, work: Work) -> None:
        """The call of one that passes."""
        if work.call is not None or await self._sign(work):
            await self._call(work)

    def passes(self, work: Work, *, held_from: float) -> bool:
        """The last look at it; where it fails, what has to become of the work is done."""
        look = self._look(work)
        if look is Look.MISSED:
            late = held_from > work.slot.latest and not work.email.attachments
            self.ends.miss(work, late=late)
        elif look is not Look.GO:
            self.ends.release(work, look)
        return look is Look.GO

    async def _sign(self, work: Work) -> bool:
        found = await self._requests.sign(work)
        match found:
            case Outcome():
                self.ends.end(work, found)
            case Fault():
                self._judging.judge(work, found, datetime.now(UTC))
            case signed:
                work.call = signed
                return True
        self.ends.unused(work)
        return False

    def _look(self, work: Work) -> Look:
        if self.ends.closing:
            return Look.STOPPING
        if self._circuit.is_open and not work.is_probe:
            return Look.CIRCUIT
        look = last_look(work, guard=self._guard, now=self._now)
        if look is Look.GO and not self._retrials.enter(work.email):
            return Look.TRIED
        return look

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
                on_begin=lambda: self._first_byte.begin(work, started),
            )
        except NotBegun as refused:
            self.ends.release(work, refused.look)
            return
        except Unavailable as error:
            self.ends.not_noted([work], error)
            return
        if isinstance(seen, Missed):
            self.ends.miss(work, late=True)
            return
        self.observe(work, started, begun)
        self._judging.judge(work, seen, started, begun=begun)

    def observe(self, work: Work, started: datetime, begun: float) -> None:
        """Its call has ended."""
        self.pace.met()
        metrics.SENDER_CALL_SECONDS.observe(time.monotonic() - begun)
        metrics.SENDER_CALL_WINDOW.observe(begun - work.claimed_at)
        late = (started - work.pointer.due).total_seconds()
        metrics.SENDER_CALL_LATENCY.observe(max(late, 0.0))

    def _ended(self, task: asyncio.Task[None]) -> None:
        works = self._tasks.pop(task)
        metrics.SENDER_IN_FLIGHT.set(self._under_way)
        self._work.set()
        if task.cancelled() and self._abandoned:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return
        # A bug of ours, or of what we use. Once the call had begun, nothing is proven.
        for work in works:
            if work.is_over:
                continue
            log.error(
                "call failed in a way nobody foresaw",
                extra={"action": "sender.call_failed", "outbox_id": str(work.email.id)},
                exc_info=error,
            )
            if work.begun:
                self._judging.judge(
                    work, Fault(kind=FaultKind.BROKEN, written=True), datetime.now(UTC)
                )
            else:
                self.ends.release(work, Look.FAULTY, delay_s=FAULTY_S)
