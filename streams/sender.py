"""mail.outbox.<lane> -> SES: claim, call, outcome, commit. Nothing is decided before the suppressions are caught up."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Self

from streams.domain.attempts import OutcomeKind, Recorded, Verdict
from streams.domain.bulk_mail import MAX_ENTRIES
from streams.domain.circuit import PROBE_INTERVALS, ProbeIntervals
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.ses_errors import TABLE
from streams.domain.ses_tenants import SesTenants
from streams.domain.topics import Lane
from streams.ports.attachments import AttachmentSource
from streams.ports.kafka_writing import UnreadableRecords
from streams.ports.sender import (
    AttemptJournal,
    EmailProvider,
    Outbox,
    PointerFeed,
    SuppressionAnnouncer,
    SuppressionGuard,
)
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_loop
from streams.runtime.settings import Settings
from streams.sending.announcing import Announcing
from streams.sending.bulk_calls import RESULTS
from streams.sending.calls import Calls, CallSettings
from streams.sending.circuit import UNANSWERED, Circuit
from streams.sending.dispatch import Dispatch, Lease
from streams.sending.no_journal import NoJournal
from streams.sending.outcome_writer import OutcomeWriter
from streams.sending.permits import Permits
from streams.sending.pointer_intake import PointerIntake
from streams.sending.progress import Progress
from streams.sending.signals import Signal
from streams.sending.work import Done

log = logging.getLogger(__name__)

STAGE: Final = "sender"
# Shares of the drain: calls under way may take this much of it, then outcomes are written.
CALLS_SHARE: Final = 0.7
OUTCOMES_SHARE: Final = 0.15
# All members of the group wait for us so long when partitions move, and their flow with them: calls that last longer end by
# themselves, and so do their outcomes.
REVOKE_S: Final = 1.0
# Liveness fails after so long without progress.
STUCK_AFTER_S: Final = 50.0
LAST_STEP_S: Final = 2.0
WATCH_EVERY_S: Final = 0.5
CLOCK_EVERY_S: Final = 3.0
POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """What the sender is told. call_s is the longest that one call of SES may take, less than lease_s."""

    configuration_set: str
    max_in_flight: int
    lease_s: float
    call_s: float
    drain_s: float
    intervals: ProbeIntervals = PROBE_INTERVALS
    tenants: SesTenants = field(default_factory=SesTenants)
    attachment_s: float = 10.0
    bulk: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Self:
        call_s = settings.sender_connect_timeout_s + settings.sender_read_timeout_s
        return cls(
            configuration_set=settings.configuration_set,
            max_in_flight=settings.sender_max_in_flight,
            lease_s=settings.sender_lease_s,
            call_s=call_s,
            drain_s=settings.drain_s,
            intervals=ProbeIntervals.of(
                first_s=settings.sender_probe_first_s,
                longest_s=settings.sender_probe_longest_s,
                answer_s=call_s,
            ),
            tenants=SesTenants(settings.ses_tenants),
            attachment_s=settings.attachment_timeout_s,
            bulk=settings.sender_bulk_calls,
        )


class Sender:
    """The stage. Owns its adapters: starts and stops all of them, the suppression table too."""

    name: Final = STAGE

    def __init__(
        self,
        settings: SenderSettings,
        *,
        outbox: Outbox,
        provider: EmailProvider,
        pointers: PointerFeed,
        suppressions: SuppressionGuard,
        unreadable: UnreadableRecords,
        journal: AttemptJournal | None = None,
        attachments: AttachmentSource | None = None,
        announcer: SuppressionAnnouncer | None = None,
    ) -> None:
        self.health = Health(stage=STAGE, stuck_after_s=STUCK_AFTER_S)
        self._settings = settings
        self._outbox = outbox
        self._provider = provider
        self._attachments = attachments
        self._pointers = pointers
        self._suppressions = suppressions
        self._unreadable = unreadable
        suppressions.tell_time(outbox.now)
        work = Signal()
        self._work = work
        self._intake = PointerIntake(feed=pointers, outbox=outbox, unreadable=unreadable, work=work)
        self._progress = Progress(
            feed=pointers, health=self.health, open_lanes=self._intake.open_lanes
        )
        self._announcing = Announcing(suppressions, announcer)
        self._journal = journal = journal or NoJournal()
        self._circuit = circuit = Circuit(
            most=settings.max_in_flight, soon=MAX_ENTRIES if settings.bulk else UNANSWERED
        )
        self._writer = OutcomeWriter(outbox=outbox, intake=self._intake, journal=journal)
        self._calls = Calls(
            CallSettings(
                configuration_set=settings.configuration_set,
                most=settings.max_in_flight,
                call_s=settings.call_s,
                tenants=settings.tenants,
                attachment_s=settings.attachment_s,
                bulk=settings.bulk,
            ),
            attachments=attachments,
            provider=provider,
            guard=suppressions,
            journal=journal,
            circuit=circuit,
            work=work,
            now=outbox.now,
        )
        self._calls.ends.done = self._done
        self._permits = Permits(
            outbox=outbox, circuit=circuit, pace=self._calls.pace, intervals=settings.intervals
        )
        self._dispatch = Dispatch(
            outbox=outbox,
            guard=suppressions,
            intake=self._intake,
            calls=self._calls,
            writer=self._writer,
            journal=journal,
            circuit=circuit,
            permits=self._permits,
            lease=Lease(lease_s=settings.lease_s, call_s=settings.call_s),
            work=work,
        )
        export_known_labels()
        self._stopping = asyncio.Event()
        self._written = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    def _done(self, done: Done) -> None:
        """The call of a recipient ended: the next one may begin, and its outcome is to be written."""
        if done.pointer is not None:
            self._intake.queues.free(done.pointer.recipient_key)
        self._writer.add(done)
        self._work.set()

    # Life -------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._stopping.clear()
        self._written.clear()
        await self._outbox.start()
        await self._provider.start()
        self._permits.scope = self._circuit.scope = self._provider.region
        self._writer.inherit(self._journal.open())
        self._open(yes=True)
        await self._join()

    async def _join(self) -> None:
        self._progress.assignment(known=False)
        self._say("group", "the senders' group has not told yet which partitions are ours")
        await self._pointers.start(on_revoked=self._revoked, on_assigned=self._assigned)

    async def run(self) -> None:
        """Sends until stop(), or until one of the duties cannot go on; the calls under way are for stop() then too."""
        self._loops = [
            self._loop("fetch", self._intake.fetch, self._stopping, recover=self._rejoin),
            self._loop("set_aside", self._intake.set_aside, self._stopping),
            self._loop("sift", self._intake.sift, self._stopping),
            self._loop("dispatch", self._dispatch.step, self._stopping),
            self._loop("progress", self._progress.look, self._stopping),
            self._loop("announce", self._announcing.step, self._stopping),
            self._loop("commit", self._commit, self._written),
            self._loop("outcomes", self._writer.write, self._written),
            self._loop("suppressions", self._suppressions.follow, self._written),
            self._loop("watch", self._watch, self._stopping),
            self._loop("clock", self._read_clock, self._stopping),
        ]
        try:
            await asyncio.gather(*self._loops)
        finally:
            # Outcomes are written and offsets committed until stop(), which waits for what is under way.
            self._stopping.set()

    def _loop(
        self,
        name: str,
        step: Callable[[], Awaitable[float]],
        stopping: asyncio.Event,
        recover: Callable[[], Awaitable[None]] | None = None,
    ) -> "asyncio.Task[None]":
        return asyncio.create_task(
            run_loop(step, name=name, health=self.health, stopping=stopping, recover=recover)
        )

    async def stop(self) -> None:
        """Takes no more, gives back what is not called, waits for calls and outcomes within its budget, leaves the group."""
        self._stopping.set()
        if any(not loop.done() for loop in self._loops):
            await self._drain(
                calls_s=self._settings.drain_s * CALLS_SHARE,
                outcomes_s=self._settings.drain_s * OUTCOMES_SHARE,
            )
            await self._commit_last()
        self._calls.abandon()
        self._written.set()
        await self._end_loops()
        await self._pointers.stop()
        await self._suppressions.stop()
        await self._unreadable.stop()
        await self._provider.stop()
        if self._attachments is not None:
            await self._attachments.stop()
        await self._outbox.stop()
        self._journal.close()

    async def _end_loops(self) -> None:
        """Each ends after its step; one that waits for a server that is away is not waited for."""
        if self._loops:
            _, late = await asyncio.wait(self._loops, timeout=LAST_STEP_S)
            for loop in late:
                loop.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _open(self, *, yes: bool) -> None:
        self._dispatch.open = yes
        if yes:
            self._calls.open()
        else:
            self._calls.close()

    async def _drain(self, *, calls_s: float, outcomes_s: float) -> None:
        """Nothing new begins; what is left after the budget is left to the leases."""
        self._open(yes=False)
        settled = await _until(lambda: self._calls.idle and not self._dispatch.busy, calls_s)
        self._calls.close()
        written = await _until(lambda: not self._writer.unwritten, outcomes_s)
        if not (settled and written):
            log.warning(
                "not everything ended in time, the rest is left to the leases",
                extra={
                    "action": "sender.not_drained",
                    "calls": not settled,
                    "outcomes": self._writer.unwritten,
                },
            )

    async def _commit(self) -> float:
        try:
            wait = await self._intake.commit()
        except Unavailable:
            self._progress.commits(work=False)
            raise
        self._progress.commits(work=True)
        return wait

    async def _commit_last(self) -> None:
        try:
            await self._intake.commit()
        except (Unavailable, Misconfigured) as error:
            log.info(
                "offsets were not committed, the records are read again",
                extra={"action": "sender.commit_failed", "error": str(error)},
            )

    # Group ------------------------------------------------------------------------------------------------------------

    async def _revoked(self, partitions: frozenset[int]) -> None:
        """Before partitions are given up, all of them: kept ones come back with on_assigned."""
        self._progress.assignment(known=False)
        if partitions:
            await self._drain(calls_s=REVOKE_S, outcomes_s=REVOKE_S)
            await self._commit_last()
        self._open(yes=False)
        self._intake.forget()

    async def _assigned(self, partitions: frozenset[int]) -> None:
        self._progress.assignment(known=True)
        self._suppressions.own(partitions)
        # Also where none are ours; the table of new ones is watched from here on.
        self._say("suppression_table", self._suppressions.missing())
        self._say("group", None)
        if not self._stopping.is_set():
            self._open(yes=True)
        self._work.set()
        log.info(
            "partitions are assigned",
            extra={"action": "sender.assigned", "partitions": sorted(partitions)},
        )

    async def _rejoin(self) -> None:
        """The consumer failed: a new one joins the group."""
        await self._pointers.stop()
        await self._revoked(frozenset())
        self._open(yes=not self._stopping.is_set())
        await self._join()

    # Watching ---------------------------------------------------------------------------------------------------------

    async def _watch(self) -> float:
        """Says in readiness what is missing, and shows what waits."""
        self._suppressions.compare(self._pointers.partitions())
        self._say("suppression_table", self._suppressions.missing())
        self._say("pointers", self._intake.halted)
        unknown = f"the sending rate of {self._permits.scope} is not known yet: see that a scheduler runs and may call ses:GetAccount"
        self._say("send_rate", None if self._permits.rate_known else unknown)
        self._say("permits", self._permits.starving)
        self._say("circuit", self._circuit.why)
        self._say("ses", self._calls.trouble.why)
        for lane in Lane:
            metrics.SENDER_QUEUED.labels(lane=lane).set(self._intake.waiting(lane))
        return WATCH_EVERY_S

    async def _read_clock(self) -> float:
        await self._outbox.read_clock()
        return CLOCK_EVERY_S

    def _say(self, what: str, why: str | None) -> None:
        if why is None:
            self.health.ready(what)
        else:
            self.health.not_ready(what, why)


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until it holds, or for so long; whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


def export_known_labels() -> None:
    """Known label sets are exported from the start, so that the first event is seen as a change."""
    for verdict in Verdict:
        metrics.SENDER_CLAIMS.labels(verdict=verdict)
    for kind in OutcomeKind:
        metrics.SENDER_OUTCOMES.labels(kind=kind)
    for recorded in Recorded:
        metrics.SENDER_RECORDED.labels(recorded=recorded)
    for result in RESULTS:
        metrics.SENDER_BULK_CALLS.labels(result=result)
    for use in ("granted", "void"):
        metrics.SENDER_PERMITS.labels(use=use)
    for row in TABLE:
        if row.kind is not OutcomeKind.ACCEPTED:
            metrics.SENDER_ERRORS.labels(error_class=row.name)
