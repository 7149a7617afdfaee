"""Several claimed rows to SES in one SendBulkEmail, each with its own outcome."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from streams.domain.attempts import OutcomeKind
from streams.domain.backoff import throttle_delay_s
from streams.domain.bulk_answers import entry_answers
from streams.domain.bulk_mail import BulkEntry
from streams.domain.errors import Unavailable
from streams.domain.outcomes import UNREACHED, uncharged
from streams.domain.ses_answers import Answer, Fault, Missed, SignedCall
from streams.domain.ses_errors import Meaning, meaning
from streams.ports.sender import EmailProvider
from streams.runtime import metrics
from streams.sending.bulk_gate import DENIED_S, BulkGate
from streams.sending.bulk_groups import common_slot, grouped
from streams.sending.circuit import Circuit
from streams.sending.ends import Ends
from streams.sending.first_byte import FirstByte
from streams.sending.judging import Judging
from streams.sending.last_look import LONGEST_HOLD_S, Look
from streams.sending.signing import Requests
from streams.sending.work import Work

if TYPE_CHECKING:
    from streams.sending.calls import Calls

DENIED: Final = "access-denied"
RESULTS: Final = ("answered", "throttled", "refused", "unknown", "unreached")


class NotAllBegun(Exception):
    """The call must not begin, since these of its messages must not be sent."""

    def __init__(self, refused: Sequence[tuple[Work, Look]]) -> None:
        super().__init__(len(refused))
        self.refused = refused


class BulkCalls:
    """What is one call here is so for the circuit too: it fails once. Slots, looks, journal and outcomes are each message's own."""

    def __init__(
        self,
        calls: "Calls",
        *,
        requests: Requests,
        judging: Judging,
        ends: Ends,
        first_byte: FirstByte,
        provider: EmailProvider,
        circuit: Circuit,
        call_s: float,
    ) -> None:
        self.gate = BulkGate()
        self._calls = calls
        self._requests = requests
        self._judging = judging
        self._ends = ends
        self._first_byte = first_byte
        self._provider = provider
        self._circuit = circuit
        self._call_s = call_s

    def groups(self, works: Sequence[Work]) -> list[list[Work]]:
        """Those that go out together."""
        return grouped(works, self._entry)

    def _entry(self, work: Work) -> BulkEntry | None:
        if work.is_probe or work.call is not None or not self.gate.admits(work.email.id):
            return None
        return self._requests.entry(work)

    async def attempt(self, works: list[Work]) -> None:
        """Calls for all of them but those that it takes out of the list, each of which ends or is given back."""
        try:
            await self._wait_and_call(works)
        finally:
            for work in works:
                self._calls.leave(work)

    async def _wait_and_call(self, works: list[Work]) -> None:
        for work in works:
            self._calls.prepared(work)
        await asyncio.sleep(max(common_slot(works).earliest - time.monotonic(), 0.0))
        held_from = time.monotonic()
        room = await self._circuit.enter_some(
            [work.email.attempt_id for work in works], patience_s=LONGEST_HOLD_S
        )
        if not room:
            for work in works:
                self._ends.release(work, Look.CIRCUIT)
            return
        if rest := works[room:]:
            del works[room:]
            self._calls.start_together(rest)
        ready = [work for work in works if self._calls.passes(work, held_from=held_from)]
        if len(ready) == 1:
            await self._calls.call_alone(ready[0])
        elif ready:
            await self._sign_and_call(ready)

    async def _sign_and_call(self, works: list[Work]) -> None:
        """Signed now, with those that passed: their leases are looked at once more before the first byte, as is the slot."""
        entries = [work.entry for work in works if work.entry is not None]
        if len(entries) != len(works):
            raise RuntimeError("a message is in a bulk call that is no entry")
        signed = await self._requests.sign_bulk(entries[0].shared, entries)
        if isinstance(signed, Fault):
            for work in works:
                self._judging.judge(work, signed, datetime.now(UTC))
            return
        await self._call(works, signed)

    async def _call(self, works: list[Work], signed: SignedCall) -> None:
        started, begun = datetime.now(UTC), time.monotonic()
        try:
            seen = await self._provider.send(
                signed,
                latest=common_slot(works).latest,
                within_s=self._call_s,
                on_begin=lambda: self._begin(works, started),
            )
        except NotAllBegun as error:
            self._take_out(works, error.refused)
            return
        except Unavailable as error:
            self._ends.not_noted(works, error)
            return
        if isinstance(seen, Missed):
            for work in works:
                self._ends.miss(work, late=True)
            return
        for work in works:
            self._calls.observe(work, started, begun)
        self._judge(works, seen, started, begun=begun)

    def _begin(self, works: Sequence[Work], started: datetime) -> None:
        """Right before the first byte: all are looked at, then all are noted. What it raises keeps the call from being made."""
        looks = [(work, self._first_byte.look(work)) for work in works]
        refused = [(work, look) for work, look in looks if look is not Look.GO]
        if refused:
            raise NotAllBegun(refused)
        for work in works:
            self._first_byte.note(work, started)
        for work in works:
            work.begin()

    def _take_out(self, works: Sequence[Work], refused: Sequence[tuple[Work, Look]]) -> None:
        """The body has them in it, so that this call is over; the others get another slot."""
        for work, look in refused:
            self._ends.release(work, look)
        for work in works:
            if not work.is_over:
                self._ends.miss(work, late=False)

    # What it ended with -----------------------------------------------------------------------------------------------

    def _judge(
        self, works: Sequence[Work], seen: Answer | Fault, started: datetime, *, begun: float
    ) -> None:
        answers = entry_answers(seen, len(works))
        if answers is None:
            self._judge_whole(works, seen, started, begun=begun)
            return
        self._circuit.reached(begun=begun)
        metrics.SENDER_BULK_CALLS.labels(result="answered").inc()
        kinds = [self._judge_entry(*pair, started) for pair in zip(works, answers, strict=True)]
        if OutcomeKind.THROTTLED not in kinds:
            self.gate.passed()

    def _judge_entry(self, work: Work, answer: Answer, started: datetime) -> OutcomeKind:
        email = work.email
        meant = meaning(answer, sender=email.sender, addresses=email.addresses)
        self._judging.learn_stops(email, meant)
        if meant.row.kind is OutcomeKind.THROTTLED:
            self.gate.close("throttled")
        self._judging.conclude(work, answer, meant, started, waits_s=_retry_s())
        return meant.row.kind

    def _judge_whole(
        self, works: Sequence[Work], seen: Answer | Fault, started: datetime, *, begun: float
    ) -> None:
        """An answer or a fault that is about the call: all its messages share it."""
        first = works[0].email
        addresses = [address for work in works for address in work.email.addresses]
        meant = meaning(seen, sender=first.sender, addresses=addresses)
        meant, result, waits_s = self._learn_whole(works, meant, begun=begun)
        metrics.SENDER_BULK_CALLS.labels(result=result).inc()
        for work in works:
            self._judging.conclude(work, seen, meant, started, waits_s=waits_s)

    def _learn_whole(
        self, works: Sequence[Work], meant: Meaning, *, begun: float
    ) -> tuple[Meaning, str, float]:
        """The meaning that is written for each, a word for the call, and the wait of those that are tried again."""
        row, first = meant.row, works[0].email
        is_unwritten = row.name in UNREACHED
        if is_unwritten or row.kind is OutcomeKind.UNKNOWN:
            self._judging.learn_stops(first, meant)
            self._circuit.failed(first.id, reason=row.reason, is_unwritten=is_unwritten)
            self.gate.close(row.name)
            if not is_unwritten:
                return meant, "unknown", 0.0
            return uncharged(meant), "unreached", self._circuit.delay_s(1)
        self._circuit.reached(begun=begun)
        if row.kind is OutcomeKind.PERMANENT or row.name == DENIED:
            self.gate.close(row.name, at_least_s=DENIED_S if row.name == DENIED else 0.0)
            self.gate.leave_alone(work.email.id for work in works)
            return _each_alone(meant), "refused", 0.0
        self._judging.learn_stops(first, meant)
        if row.kind is OutcomeKind.THROTTLED:
            return meant, "throttled", self.gate.close(row.name)
        return meant, "refused", _retry_s()


def _each_alone(meant: Meaning) -> Meaning:
    """Refused together it may be the fault of one, or of the way they were sent: each shows by itself what is wrong.

    SES took none of them, none is charged, and nothing pauses.
    """
    reason = f"{meant.reason}; it was one of several in a bulk call, and goes out alone"
    row = replace(meant.row, kind=OutcomeKind.THROTTLED, pause=None)
    return replace(meant, row=row, reason=reason)


def _retry_s() -> float:
    return throttle_delay_s(1, random.random())  # noqa: S311 jitter is no secret
