"""Claimed rows through their slots to SES, many at a time, one a recipient."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from streams.domain.attempts import Outcome, OutcomeKind
from streams.domain.backoff import throttle_delay_s
from streams.domain.errors import BadMessage
from streams.domain.mail_content import send_email_body
from streams.domain.outcomes import (
    STALE_CREDENTIALS,
    UNREACHED,
    delay_of,
    outcome_of_call,
    pause_of,
    released,
    uncharged,
    unsendable,
)
from streams.domain.pacing import Pace
from streams.domain.ses_answers import Answer, Fault, FaultKind, Missed
from streams.domain.ses_errors import Meaning, meaning
from streams.ports.sender import EmailProvider, SuppressionGuard
from streams.runtime import metrics
from streams.sending.outage import Outage
from streams.sending.signals import Signal
from streams.sending.work import Done, Work

log = logging.getLogger(__name__)

# What fails before its call in a way that nobody foresaw is looked at again so late: it must not fill the process.
FAULTY_S: Final = 60.0


class Look(StrEnum):
    """What the last look before the call says."""

    GO = "go"
    MISSED = "missed"
    STOPPING = "stopping"
    LEASE = "lease"
    EXPIRED = "expired"
    SUPPRESSED = "suppressed"
    STALE = "stale"
    FAULTY = "faulty"


class Calls:
    """start() never waits. What ends is handed to `done`; what missed its slot waits in `missed` for another one."""

    def __init__(
        self,
        *,
        provider: EmailProvider,
        guard: SuppressionGuard,
        configuration_set: str,
        most: int,
        call_s: float,
        work: Signal,
        now: Callable[[], float],
    ) -> None:
        self.missed: list[Work] = []
        self.pace = Pace(most)
        self.done: Callable[[Done], None] = lambda _: None
        self._provider = provider
        self._guard = guard
        self._configuration_set = configuration_set
        self._most = most
        self._call_s = call_s
        self._work = work
        self._now = now
        self._outage = Outage()
        self._tasks: dict[asyncio.Task[None], Work] = {}
        self._closing = False
        self._throttled_until = 0.0
        self._throttles = 0

    @property
    def room(self) -> int:
        """How many more rows may be claimed."""
        return self._most - len(self._tasks) - len(self.missed)

    @property
    def backing_off_s(self) -> float:
        """SES throttled us or cannot be reached: so long nothing new should be asked for."""
        return max(self._throttled_until - time.monotonic(), self._outage.backing_off_s)

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
        """Stops waiting for answers: what is under way is left to its lease."""
        for task in self._tasks:
            task.cancel()

    # One row ----------------------------------------------------------------------------------------------------------

    async def _attempt(self, work: Work) -> None:
        if work.call is None and not await self._sign(work):
            return
        if work.granted_at is not None:
            self.pace.prepared(time.monotonic() - work.granted_at)
            work.granted_at = None
        await asyncio.sleep(max(work.slot.earliest - time.monotonic(), 0.0))
        look = self._look(work)
        if look is Look.GO:
            await self._call(work)
        elif look is Look.MISSED:
            self._miss(work)
        else:
            self._release(work, look)

    async def _sign(self, work: Work) -> bool:
        try:
            body = send_email_body(
                work.email, work.content, configuration_set=self._configuration_set
            )
        except BadMessage as error:
            outcome = unsendable(
                work.email, error_class="content", reason=str(error), finished=datetime.now(UTC)
            )
            self._end(work, outcome, None)
            return False
        except (
            Exception
        ) as error:  # the body is made of this row alone, so that no later try will do better
            log.error(
                "request could not be made in a way nobody foresaw",
                extra={"action": "sender.body_failed", "outbox_id": str(work.email.id)},
                exc_info=error,
            )
            reason = f"the request for SES could not be made ({type(error).__name__}): correct the row, and report it"
            outcome = unsendable(
                work.email, error_class="content", reason=reason, finished=datetime.now(UTC)
            )
            self._end(work, outcome, None)
            return False
        signed = await self._provider.sign(body)
        if isinstance(signed, Fault):
            self._judge(work, signed, datetime.now(UTC))
            return False
        work.call = signed
        return True

    def _look(self, work: Work) -> Look:
        """Once more at the table and the clock, right before the call."""
        now, pointer = time.monotonic(), work.pointer
        if self._closing:
            return Look.STOPPING
        if now > work.begin_by:
            return Look.LEASE
        if now > work.slot.latest:
            return Look.MISSED
        if pointer.expires is not None and pointer.expires.timestamp() <= self._now():
            return Look.EXPIRED
        if not self._guard.usable(pointer.partition):
            return Look.STALE
        email = work.email
        hit = self._guard.hit(pointer.partition, email.recipient_key, email.tenant, email.lane)
        return Look.GO if hit in (None, work.overruled) else Look.SUPPRESSED

    async def _call(self, work: Work) -> None:
        call = work.call
        if call is None:
            raise RuntimeError("a call is signed before it is made")
        started, begun = datetime.now(UTC), time.monotonic()
        seen = await self._provider.send(
            call, latest=work.slot.latest, within_s=self._call_s, on_begin=work.begin
        )
        if isinstance(seen, Missed):
            self._miss(work)
            return
        self.pace.met()
        self._observe(work, started, begun)
        self._judge(work, seen, started)

    def _observe(self, work: Work, started: datetime, begun: float) -> None:
        metrics.SENDER_CALL_SECONDS.observe(time.monotonic() - begun)
        metrics.SENDER_CALL_WINDOW.observe(begun - work.claimed_at)
        late = (started - work.pointer.due).total_seconds()
        metrics.SENDER_CALL_LATENCY.observe(max(late, 0.0))

    def _judge(self, work: Work, seen: Answer | Fault, started: datetime) -> None:
        email = work.email
        meant = meaning(seen, sender=email.sender, addresses=email.addresses)
        self._adapt(meant)
        waits_s = throttle_delay_s(self._throttles, random.random())  # noqa: S311 jitter is no secret
        if meant.row.name in UNREACHED:
            charged = self._outage.failed(email.id)
            waits_s = self._outage.delay_s(email.attempt)
            meant = meant if charged else uncharged(meant)
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

    def _adapt(self, meant: Meaning) -> None:
        """Slows down after a throttled answer, once an episode; looks for new credentials where they were refused."""
        if meant.row.name in STALE_CREDENTIALS:
            self._provider.forget_credentials()
        if meant.row.name not in UNREACHED and meant.row.name != "no-credentials":
            self._outage.ended()
        throttling = self._throttled_until > time.monotonic()
        if meant.row.kind is OutcomeKind.ACCEPTED and not throttling:
            self._throttles = 0
        if meant.row.kind is OutcomeKind.THROTTLED and not throttling:
            self._throttles += 1
            pause = throttle_delay_s(self._throttles, random.random())  # noqa: S311 jitter is no secret
            self._throttled_until = time.monotonic() + pause

    # Ends -------------------------------------------------------------------------------------------------------------

    def _end(self, work: Work, outcome: Outcome, meant: Meaning | None) -> None:
        pause = None if meant is None else pause_of(work.email, meant)
        self.done(Done(outcome=outcome, pointer=work.pointer, pause=pause))

    def _release(self, work: Work, look: Look, *, delay_s: float = 0.0) -> None:
        log.info(
            "claim is given back, SES was not called",
            extra={"action": "sender.released", "outbox_id": str(work.email.id), "why": look},
        )
        self._end(work, released(work.email, finished=datetime.now(UTC), delay_s=delay_s), None)

    def _miss(self, work: Work) -> None:
        self.pace.missed(time.monotonic())
        metrics.SENDER_PERMITS.labels(use="void").inc(work.pointer.recipients)
        if self._closing:
            self._release(work, Look.STOPPING)
        else:
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
