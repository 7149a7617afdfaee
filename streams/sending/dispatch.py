"""From the queues to claimed rows: drop what is suppressed or expired, take permits, claim, hand over to the calls."""

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from streams.domain.attempts import (
    Claim,
    ClaimRequest,
    Email,
    Outcome,
    OutcomeKind,
    Verdict,
    new_attempt_id,
)
from streams.domain.errors import BadMessage
from streams.domain.outcomes import released, undecodable, unsendable
from streams.domain.pacing import Allowance
from streams.domain.pointers import Pointer
from streams.ports.sender import AttemptJournal, Outbox, SuppressionGuard
from streams.runtime import metrics
from streams.sending.calls import Calls
from streams.sending.circuit import Circuit
from streams.sending.contents import Contents
from streams.sending.last_look import LONGEST_HOLD_S, lease_clock
from streams.sending.outcome_writer import OutcomeWriter
from streams.sending.permits import Permits
from streams.sending.pointer_intake import PointerIntake
from streams.sending.signals import Signal
from streams.sending.work import Done, Work

log = logging.getLogger(__name__)

IDLE_S: Final = 0.25
NO_RATE_S: Final = 1.0
SHORTEST_WAIT_S: Final = 0.005
LONGEST_WAIT_S: Final = 1.0
# What a pause holds comes again every half minute.
PAUSES_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """lease_s: how long a claim is ours; call_s: the longest call, which has to end before."""

    lease_s: float
    call_s: float


class Dispatch:
    """One step takes one batch from the queues to the calls. What a step took and did not hand over goes back."""

    def __init__(
        self,
        *,
        outbox: Outbox,
        guard: SuppressionGuard,
        intake: PointerIntake,
        calls: Calls,
        writer: OutcomeWriter,
        journal: AttemptJournal,
        circuit: Circuit,
        permits: Permits,
        lease: Lease,
        work: Signal,
    ) -> None:
        self.open = True
        self.busy = False
        self._outbox = outbox
        self._guard = guard
        self._intake = intake
        self._calls = calls
        self._writer = writer
        self._journal = journal
        self._circuit = circuit
        self._permits = permits
        self._lease = lease
        self._work = work
        self._contents = Contents(outbox)
        # Pointers that this step holds, with the suppression in memory that the database did not confirm.
        self._held: dict[UUID, Pointer] = {}
        self._overruled: dict[UUID, int] = {}
        self._paused_at = -PAUSES_S
        # The journal did not take the last claim: one message is tried at a time, so that no more permits are void.
        self._unnoted = False

    async def step(self) -> float:
        """Waits where there is no work or no room; returns how long to wait before the next step."""
        if not self.open or self._writer.owes:
            return IDLE_S
        if self._calls.backing_off_s > 0:
            return self._calls.backing_off_s
        self.busy = True
        try:
            if self._calls.ends.missed:
                return await self._place_missed()
            if self._take():
                return await self._dispatch()
            if self._permits.has_question:
                return NO_RATE_S if await self._permits.take([]) is None else 0.0
        finally:
            self._put_back(list(self._held.values()))
            self.busy = False
        self._permits.not_wanted()
        await self._work.wait(IDLE_S)
        return 0.0

    def _take(self) -> bool:
        """Holds the next pointers; whether there are any."""
        most = min(self._calls.room, 1 if self._unnoted else self._calls.pace.size)
        taken = self._intake.queues.take(most, self._guard.usable) if most > 0 else []
        self._overruled.clear()
        for pointer in taken:
            if pointer.id in self._held:
                self._put_back([pointer])
            else:
                self._held[pointer.id] = pointer
        return bool(taken)

    def _put_back(self, pointers: Sequence[Pointer]) -> None:
        for pointer in pointers:
            if self._held.get(pointer.id) is pointer:
                del self._held[pointer.id]
            self._intake.queues.free(pointer.recipient_key)
        self._intake.put_back(pointers)

    def _drop(self, pointer: Pointer, verdict: Verdict) -> None:
        """Nothing more is to be done for the pointer in this process."""
        metrics.SENDER_CLAIMS.labels(verdict=verdict).inc()
        self._held.pop(pointer.id, None)
        self._intake.queues.free(pointer.recipient_key)
        if verdict is Verdict.INVISIBLE:
            self._intake.hide(pointer)
        else:
            self._intake.finish(pointer)

    async def _dispatch(self) -> float:
        await self._close_unsendable()
        await self._hold_paused()
        waiting = list(self._held.values())
        if not waiting:
            return 0.0
        allowance = await self._permits.take(waiting)
        if allowance is None:
            return NO_RATE_S
        messages = allowance.grant.messages
        self._put_back(waiting[messages:])
        if not messages:
            return _wait_s(allowance)
        await self._claim(waiting[:messages], allowance)
        return 0.0

    async def _close_unsendable(self) -> None:
        """What memory says is suppressed, or the clock expired, is written so if the database confirms it."""
        now = self._outbox.now()
        for pointer in self._held.values():
            hit = self._guard.hit(
                pointer.partition, pointer.recipient_key, pointer.tenant, pointer.lane
            )
            if hit is not None:
                self._overruled[pointer.id] = hit
        asked = [
            p.id
            for p in self._held.values()
            if p.id in self._overruled or (p.expires is not None and p.expires.timestamp() <= now)
        ]
        if asked:
            for id_, verdict in (await self._outbox.close_unsendable(asked)).items():
                self._drop(self._held[id_], verdict)

    async def _hold_paused(self) -> None:
        """Once a claim has met a pause, what pauses hold is put to sleep before permits are taken for it."""
        if not self._held or time.monotonic() - self._paused_at > PAUSES_S:
            return
        for id_ in await self._outbox.hold_paused(list(self._held)):
            self._paused_at = time.monotonic()
            self._drop(self._held[id_], Verdict.PAUSED)

    async def _claim(self, chosen: Sequence[Pointer], allowance: Allowance) -> None:
        requests = [
            ClaimRequest(
                id=p.id,
                attempt_id=new_attempt_id(time.time_ns() // 1_000_000, os.urandom(10)),
                xid=p.xid,
            )
            for p in chosen
        ]
        asked_at = lease_clock()
        try:
            self._unnoted = True
            self._journal.claiming([(r.id, r.attempt_id) for r in requests])
            self._unnoted = False
            emails = await self._ask(requests)
        except BaseException:
            if allowance.is_probe:
                self._circuit.unused()
            raise
        used = sum(allowance.terms.cost(p.recipients) for p, _ in emails)
        void = max(allowance.grant.permits - used, 0.0)
        metrics.SENDER_PERMITS.labels(use="void").inc(void)
        await self._hand_over(emails, allowance, asked_at)

    async def _ask(self, requests: Sequence[ClaimRequest]) -> list[tuple[Pointer, Email]]:
        """Claims; the rows that are ours now, in order. All others are done with."""
        try:
            claims = await self._outbox.claim(requests, lease_s=self._lease.lease_s)
        except BaseException:
            self._lost(requests)
            raise
        self._journal.closed(
            request.attempt_id
            for request, claim in zip(requests, claims, strict=True)
            if claim.verdict is not Verdict.CLAIMED
        )
        return self._sort_out(claims)

    def _lost(self, requests: Sequence[ClaimRequest]) -> None:
        """The answer is lost, so rows may be claimed that nobody calls: they are given back before anything else."""
        metrics.SENDER_LOST_CLAIMS.inc(len(requests))
        for request in requests:
            pointer = self._held.pop(request.id)
            self._intake.queues.free(pointer.recipient_key)
            outcome = Outcome(
                id=request.id,
                attempt_id=request.attempt_id,
                number=0,
                kind=OutcomeKind.RELEASED,
                finished=datetime.now(UTC),
            )
            self._writer.add(Done(outcome=outcome, pointer=pointer, lost=True))

    def _sort_out(self, claims: Sequence[Claim]) -> list[tuple[Pointer, Email]]:
        ours = []
        now = datetime.now(UTC)
        for claim in claims:
            pointer = self._held[claim.id]
            if claim.verdict is not Verdict.CLAIMED:
                if claim.verdict is Verdict.PAUSED:
                    self._paused_at = time.monotonic()
                self._drop(pointer, claim.verdict)
                continue
            del self._held[claim.id]
            metrics.SENDER_CLAIMS.labels(verdict=claim.verdict).inc()
            if claim.undecodable is not None:
                outcome = undecodable(claim.undecodable, finished=datetime.now(UTC))
                self._calls.ends.done(Done(outcome=outcome, pointer=pointer))
            if claim.email is None:
                continue
            late = (now - pointer.due).total_seconds()
            metrics.SENDER_CLAIM_LATENCY.observe(max(late, 0.0))
            ours.append((pointer, claim.email))
        return ours

    async def _hand_over(
        self,
        emails: Sequence[tuple[Pointer, Email]],
        allowance: Allowance,
        asked_at: float,
    ) -> None:
        """Whatever happens, each row is called, ends, or is given back."""
        claimed_at = time.monotonic()
        left = deque(emails)
        works: list[Work] = []
        try:
            contents = await self._contents.of([email for _, email in emails])
            slots = allowance.slots([p.recipients for p, _ in emails])
            granted_at: float | None = allowance.granted_at
            for slot, content in zip(slots, contents, strict=False):
                pointer, email = left[0]
                if isinstance(content, BadMessage):
                    self._calls.ends.done(_unsendable(email, pointer, content))
                else:
                    work = Work(
                        email=email,
                        content=content,
                        pointer=pointer,
                        slot=slot,
                        claimed_at=claimed_at,
                        begin_by=asked_at + self._lease.lease_s - self._lease.call_s,
                        overruled=self._overruled.get(email.id),
                        granted_at=granted_at,
                        is_probe=allowance.is_probe,
                    )
                    works.append(work)
                    granted_at = None
                left.popleft()
        finally:
            if allowance.is_probe and not works:
                self._circuit.unused()
            self._calls.start(*works)
            for pointer, email in left:
                self._calls.ends.done(_released(email, pointer))

    async def _place_missed(self) -> float:
        """Rows that are ours and missed their slots get new ones, or are given back if their claim was long ago."""
        now = time.monotonic()
        works, self._calls.ends.missed = self._calls.ends.missed, []
        try:
            too_late = [
                w for w in works if self._circuit.is_open or now - w.claimed_at > LONGEST_HOLD_S
            ]
            for work in too_late:
                works.remove(work)
                self._calls.ends.done(_released(work.email, work.pointer))
            if not works:
                return 0.0
            allowance = await self._permits.take([w.pointer for w in works])
            if allowance is None:
                return NO_RATE_S
            granted_at: float | None = allowance.granted_at
            slots = allowance.slots([w.pointer.recipients for w in works])
            again, works = works[: len(slots)], works[len(slots) :]
            for work, slot in zip(again, slots, strict=True):
                work.slot, work.granted_at = slot, granted_at
                work.is_probe = allowance.is_probe
                granted_at = None
            self._calls.start(*again)
            return 0.0 if not works else _wait_s(allowance)
        finally:
            self._calls.ends.missed = works + self._calls.ends.missed


def _wait_s(allowance: Allowance) -> float:
    """A clock that was set back may say anything."""
    return min(max(allowance.grant.wait_s, SHORTEST_WAIT_S), LONGEST_WAIT_S)


def _released(email: Email, pointer: Pointer) -> Done:
    return Done(outcome=released(email, finished=datetime.now(UTC)), pointer=pointer)


def _unsendable(email: Email, pointer: Pointer, error: BadMessage) -> Done:
    outcome = unsendable(
        email, error_class="template", reason=str(error), finished=datetime.now(UTC)
    )
    return Done(outcome=outcome, pointer=pointer)
