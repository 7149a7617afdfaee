"""Claimed rows and granted permits that nobody may forget, whatever happens between grant, claim and call."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import pytest

from streams.domain.attempts import Claim, ClaimRequest, Outcome, OutcomeKind, Verdict
from streams.domain.circuit import CLOSED, PROBE_INTERVALS, CircuitState, Report
from streams.domain.errors import Unavailable
from streams.domain.offsets import ContiguousOffsets
from streams.domain.pacing import Grant, ServerClock
from streams.domain.pointers import Pointer
from streams.domain.ses_answers import Answer, SignedCall
from streams.sending.calls import Calls, CallSettings
from streams.sending.circuit import Circuit
from streams.sending.dispatch import Dispatch, Lease
from streams.sending.no_journal import NoJournal
from streams.sending.outcome_writer import OutcomeWriter
from streams.sending.permits import Permits
from streams.sending.pointer_intake import PointerIntake
from streams.sending.signals import Signal
from streams.sending.work import Done
from tests.unit.test_sender_calls import POINTER, Unsuppressed
from tests.unit.test_sender_mail_content import EMAIL

OPEN = CircuitState(failing=20, failing_messages=12, open_since=1.7e9, reason="SES failed")


@dataclass
class Outbox:
    """Grants what is asked for, a single probe while the circuit is open; claims everything."""

    state: CircuitState = CLOSED
    template: str | None = None
    templates_fail: bool = False
    reports: list[Report] = field(default_factory=list)
    clock: ServerClock = field(default_factory=ServerClock)

    def now(self) -> float:
        return time.time()

    async def take_permits(
        self, _: str, costs: Sequence[float], *, report: Report, **__: Any
    ) -> tuple[Grant, ServerClock, CircuitState]:
        self.reports.append(report)
        is_open = self.state.open_since is not None
        messages = min(len(costs), 1) if is_open else len(costs)
        at = time.monotonic()
        self.clock.observe(asked_at=at, server_now=at, answered_at=at)
        grant = Grant(
            messages=messages,
            permits=sum(costs[:messages]),
            server_now=at,
            start_at=at,
            per_second=1000.0,
            wait_s=0.0,
        )
        return grant, self.clock, replace(self.state, probe=1 if is_open and messages else None)

    async def close_unsendable(self, _: Sequence[UUID]) -> dict[UUID, Verdict]:
        return {}

    async def hold_paused(self, _: Sequence[UUID]) -> list[UUID]:
        return []

    async def claim(self, requests: Sequence[ClaimRequest], **_: Any) -> list[Claim]:
        return [
            Claim(
                id=r.id,
                verdict=Verdict.CLAIMED,
                email=replace(
                    EMAIL,
                    id=r.id,
                    attempt_id=r.attempt_id,
                    template=self.template,
                    template_version=None if self.template is None else 1,
                ),
            )
            for r in requests
        ]

    async def templates(self, _: Sequence[Any]) -> dict[Any, Any]:
        if self.templates_fail:
            raise Unavailable("PostgreSQL is away")
        return {}


class Provider:
    """Accepts everything."""

    async def sign(self, body: bytes) -> SignedCall:
        return SignedCall(body=body, headers={})

    async def send(self, *_: Any, on_begin: Callable[[], None], **__: Any) -> Answer:
        on_begin()
        return Answer(status=200, message_id="m-1")


class Rig:
    """A dispatch with real queues, permits and calls; what ended, in order."""

    def __init__(self, outbox: Outbox) -> None:
        work = Signal()
        self.ended: list[Outcome] = []
        self.circuit = Circuit()
        self.intake = PointerIntake(
            feed=cast(Any, None), outbox=cast(Any, outbox), unreadable=cast(Any, None), work=work
        )
        self.calls = Calls(
            CallSettings(configuration_set="mailstreams", most=4, call_s=5.0),
            provider=cast(Any, Provider()),
            guard=cast(Any, Unsuppressed()),
            journal=NoJournal(),
            circuit=self.circuit,
            work=work,
            now=outbox.now,
        )
        self.calls.ends.done = self._done
        self.dispatch = Dispatch(
            outbox=cast(Any, outbox),
            guard=cast(Any, Unsuppressed()),
            intake=self.intake,
            calls=self.calls,
            writer=OutcomeWriter(outbox=cast(Any, outbox), intake=self.intake, journal=NoJournal()),
            journal=NoJournal(),
            circuit=self.circuit,
            permits=Permits(
                outbox=cast(Any, outbox),
                circuit=self.circuit,
                pace=self.calls.pace,
                intervals=PROBE_INTERVALS,
            ),
            lease=Lease(lease_s=45.0, call_s=5.0),
            work=work,
        )

    def _done(self, done: Done) -> None:
        self.ended.append(done.outcome)
        assert done.pointer is not None
        self.intake.queues.free(done.pointer.recipient_key)

    def queue(self, *pointers: Pointer) -> None:
        for pointer in pointers:
            offsets = self.intake._offsets.setdefault(pointer.topic_partition, ContiguousOffsets())
            offsets.track(pointer.offset)
        self.intake.put_back(pointers)

    async def idle(self) -> None:
        deadline = time.monotonic() + 60.0
        while not self.calls.idle:
            assert time.monotonic() < deadline, "calls did not end"
            await asyncio.sleep(0.001)


async def test_a_probe_whose_message_cannot_be_sent_at_all_leaves_the_probe_to_another() -> None:
    rig = Rig(Outbox(state=OPEN, template="gone"))
    rig.queue(POINTER)
    await rig.dispatch.step()
    await rig.idle()
    assert [outcome.kind for outcome in rig.ended] == [OutcomeKind.UNSENDABLE]
    assert rig.circuit.take_report().unused_probe == 1


async def test_a_probe_whose_content_cannot_be_read_now_leaves_the_probe_to_another() -> None:
    rig = Rig(Outbox(state=OPEN, template="welcome", templates_fail=True))
    rig.queue(POINTER)
    with pytest.raises(Unavailable):
        await rig.dispatch.step()
    assert [outcome.kind for outcome in rig.ended] == [OutcomeKind.RELEASED]
    assert rig.circuit.take_report().unused_probe == 1


async def test_a_probe_that_is_made_is_not_left_to_another() -> None:
    rig = Rig(Outbox(state=OPEN))
    rig.queue(POINTER)
    await rig.dispatch.step()
    await rig.idle()
    assert [outcome.kind for outcome in rig.ended] == [OutcomeKind.ACCEPTED]
    assert rig.circuit.take_report().unused_probe is None


async def test_a_sender_without_work_learns_that_the_circuit_is_closed() -> None:
    """Its readiness would say for ever that SES fails."""
    outbox = Outbox(state=CLOSED)
    rig = Rig(outbox)
    rig.circuit.learn(OPEN)
    deadline = time.monotonic() + 60.0
    while rig.circuit.is_open:
        assert time.monotonic() < deadline, "it did not ask"
        await rig.dispatch.step()
    assert len(outbox.reports) == 1
