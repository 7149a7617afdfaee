"""Bulk calls: which rows share one, what keeps each of them out to the last moment, and what becomes of each afterwards."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from streams.domain.attempts import AttemptId, Outcome, OutcomeKind
from streams.domain.bulk_mail import MAX_ENTRIES
from streams.domain.errors import Unavailable
from streams.domain.pacing import Slot
from streams.domain.ses_answers import (
    SEND_BULK_EMAIL,
    SEND_EMAIL,
    Answer,
    EntryResult,
    Fault,
    FaultKind,
    Missed,
    SignedCall,
)
from streams.sending.bulk_gate import BulkGate
from streams.sending.bulk_groups import common_slot, grouped
from streams.sending.calls import Calls, CallSettings
from streams.sending.circuit import UNANSWERED, Circuit
from streams.sending.last_look import lease_clock
from streams.sending.signals import Signal
from streams.sending.work import Done, Work
from tests.unit.test_sender_bulk_mail import BULK
from tests.unit.test_sender_calls import FAR, POINTER, work_of

K = OutcomeKind
Seen = Answer | Fault | Missed
LOST = Fault(kind=FaultKind.TIMEOUT, written=True)
AWAY = Fault(kind=FaultKind.UNREACHABLE, written=False)
SINGLE = Answer(status=200, message_id="m-single")


def refusal(code: str, status: int = 400, message: str = "") -> Answer:
    return Answer(status=status, code=code, message=message)


def results(*statuses: str) -> Answer:
    """SUCCESS with a message id of its place, all others without."""
    return Answer(
        status=200,
        results=tuple(
            EntryResult(
                status=status,
                message_id=f"m-{n}" if status == "SUCCESS" else None,
                has_message_id=status == "SUCCESS",
            )
            for n, status in enumerate(statuses)
        ),
    )


def taken(count: int) -> Answer:
    return results(*["SUCCESS"] * count)


@dataclass
class Guard:
    """Suppresses these recipients."""

    suppressed: set[str] = field(default_factory=set)

    def usable(self, *_: Any) -> bool:
        return True

    def hit(self, _: int, key: str, *__: Any) -> int | None:
        return 7 if key in self.suppressed else None


@dataclass
class Journal:
    """Fails after so many beginnings."""

    most: int = 10_000
    begun_ids: list[AttemptId] = field(default_factory=list)

    def begun(self, begin: Any) -> None:
        if len(self.begun_ids) >= self.most:
            raise Unavailable("the disk is full")
        self.begun_ids.append(begin.attempt_id)


@dataclass
class Provider:
    """Answers bulk calls by `answer`; what was written is kept: path and recipients."""

    answer: Callable[[int], Seen] = taken
    connecting: Callable[[], None] = lambda: None
    written: list[tuple[str, list[str]]] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    forgotten: int = 0
    gate: asyncio.Event | None = None

    async def sign(self, body: bytes, *, path: str = SEND_EMAIL) -> SignedCall:
        return SignedCall(body=body, headers={}, path=path)

    def forget_credentials(self) -> None:
        self.forgotten += 1

    async def send(self, call: SignedCall, *, on_begin: Callable[[], None], **_: Any) -> Seen:
        made = json.loads(call.body)
        entries = made.get("BulkEmailEntries", [made])
        if call.path == SEND_BULK_EMAIL:
            found = self.answer(len(entries))
            if found is AWAY or isinstance(found, Missed):
                return found
            self.connecting()
        else:
            found = SINGLE
        on_begin()
        self.written.append((call.path, [e["Destination"]["ToAddresses"][0] for e in entries]))
        self.at.append(time.monotonic())
        if self.gate is not None:
            await self.gate.wait()
        return found

    @property
    def shape(self) -> list[int]:
        """How many recipients each call had; negative: a SendEmail."""
        return [len(to) if path == SEND_BULK_EMAIL else -len(to) for path, to in self.written]


def work(n: int, *, slot: Slot | None = None, **fields: Any) -> Work:
    """The n-th row, to a recipient of its own."""
    email = replace(
        BULK,
        id=UUID(int=n + 1),
        attempt_id=AttemptId(UUID(int=1000 + n)),
        recipient=f"u{n}@example.com",
        recipient_key=cast(Any, f"key-{n}"),
        **fields,
    )
    made = work_of(replace(POINTER, id=email.id, recipient_key=email.recipient_key), email)
    if slot is not None:
        made.slot = slot
    return made


async def until(condition: Callable[[], bool]) -> None:
    """Polls until it holds."""
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.001)


class Rig:
    """Calls with a scripted SES; what ended, in order."""

    def __init__(self, provider: Provider, *, window: int = MAX_ENTRIES, most: int = 200) -> None:
        self.guard, self.journal, self.circuit = Guard(), Journal(), Circuit(most=most)
        self.circuit._window = window
        self.provider = provider
        self.ended: list[Done] = []
        self.now = 0.0
        self._came = Signal()
        self.calls = Calls(
            CallSettings(configuration_set="mailstreams", most=most, call_s=5.0, bulk=True),
            provider=cast(Any, provider),
            guard=cast(Any, self.guard),
            journal=cast(Any, self.journal),
            circuit=self.circuit,
            work=Signal(),
            now=lambda: self.now,
        )
        self.calls.ends.done = self._done

    def _done(self, done: Done) -> None:
        self.ended.append(done)
        self._came.set()

    async def settle(self, works: Sequence[Work]) -> None:
        """Starts them and waits until no call is under way."""
        self.calls.start(*works)
        await self.idle()

    async def idle(self) -> None:
        await until(lambda: self.calls.idle)

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """By the number of the row; each ended once."""
        found = {done.outcome.id.int - 1: done.outcome for done in self.ended}
        assert len(found) == len(self.ended), "a row ended twice"
        return found

    @property
    def kinds(self) -> Counter[OutcomeKind]:
        return Counter(outcome.kind for outcome in self.outcomes.values())


def rows(count: int, **fields: Any) -> list[Work]:
    return [work(n, **fields) for n in range(count)]


# Groups -----------------------------------------------------------------------------------------------------------------


async def test_rows_of_one_batch_share_a_call_and_each_has_its_own_outcome() -> None:
    rig = Rig(Provider(answer=lambda _: results("SUCCESS", "MESSAGE_REJECTED", "SUCCESS")))
    await rig.settle(rows(3))
    assert rig.provider.shape == [3]
    assert {n: o.kind for n, o in rig.outcomes.items()} == {
        0: K.ACCEPTED,
        1: K.PERMANENT,
        2: K.ACCEPTED,
    }
    assert [rig.outcomes[n].provider_message_id for n in range(3)] == ["m-0", None, "m-2"]
    assert rig.outcomes[1].code == "MESSAGE_REJECTED"
    assert rig.journal.begun_ids == [w.email.attempt_id for w in rows(3)]


async def test_a_call_has_fifty_entries_at_most() -> None:
    rig = Rig(Provider(), window=200)
    await rig.settle(rows(120))
    assert sorted(rig.provider.shape) == [20, 50, 50]
    assert rig.kinds == {K.ACCEPTED: 120}


async def test_rows_that_share_nothing_or_cannot_be_entries_go_alone() -> None:
    rig = Rig(Provider())
    probe = work(3)
    probe.is_probe = True
    signed = work(4)
    signed.call = SignedCall(
        body=json.dumps({"Destination": {"ToAddresses": ["signed@example.com"]}}).encode(),
        headers={},
    )
    await rig.settle(
        [
            work(0),
            work(1, sender="other@example.com"),
            work(2, cc=("cc@example.com",)),
            probe,
            signed,
        ]
    )
    assert sorted(rig.provider.shape) == [-1] * 5
    assert rig.kinds == {K.ACCEPTED: 5}


async def test_a_row_that_cannot_be_sent_at_all_ends_with_its_reason_and_stops_no_other() -> None:
    rig = Rig(Provider())
    await rig.settle([work(0), work(1, tags={"ref": "a:b"}), work(2)])
    assert rig.provider.shape == [2]
    assert rig.outcomes[1].kind is K.UNSENDABLE
    assert "tag" in (rig.outcomes[1].reason or "")


def test_rows_share_a_call_only_as_far_as_their_slots_overlap() -> None:
    """At this rate a slot begins every 10 ms and may be 50 ms late: half of that is left for the call to begin."""
    works = [work(n, slot=Slot(earliest=n * 0.01, latest=n * 0.01 + 0.05)) for n in range(7)]
    rig = Rig(Provider())
    bulk = rig.calls._bulk
    assert bulk is not None
    groups = grouped(works, bulk._entry, now=lambda: 0.0)
    assert [len(group) for group in groups] == [3, 3, 1]
    for group in groups:
        slot = common_slot(group)
        assert all(w.slot.earliest <= slot.earliest < slot.latest <= w.slot.latest for w in group)


async def test_no_byte_of_a_call_leaves_before_all_its_slots_have_begun() -> None:
    rig = Rig(Provider())
    start = time.monotonic()
    works = [work(n, slot=Slot(earliest=start + n * 0.05, latest=FAR)) for n in range(4)]
    await rig.settle(works)
    assert rig.provider.shape == [4]
    assert rig.provider.at[0] >= start + 0.15


async def test_a_call_is_no_larger_than_the_circuit_lets_begin() -> None:
    """An SES that does not answer then has no more of them than of single calls."""
    rig = Rig(Provider(gate=asyncio.Event()), window=6)
    rig.calls.start(*rows(20))
    await until(lambda: bool(rig.provider.written))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert rig.provider.shape == [6]
    assert rig.calls._under_way == 20
    assert rig.provider.gate is not None
    rig.provider.gate.set()
    await rig.idle()
    assert sum(map(abs, rig.provider.shape)) == 20
    assert rig.kinds == {K.ACCEPTED: 20}


# Right before the call --------------------------------------------------------------------------------------------------


async def test_what_the_last_look_stops_is_taken_out_and_the_others_go() -> None:
    rig = Rig(Provider())
    works = rows(5)
    rig.guard.suppressed = {"key-1"}
    rig.now = datetime.now(UTC).timestamp()
    works[2].pointer = replace(works[2].pointer, expires=datetime.now(UTC) - timedelta(seconds=1))
    works[3].begin_by = lease_clock() - 1.0
    await rig.settle(works)
    assert rig.provider.written == [(SEND_BULK_EMAIL, ["u0@example.com", "u4@example.com"])]
    assert {n for n, o in rig.outcomes.items() if o.kind is K.RELEASED} == {1, 2, 3}


async def test_the_only_one_that_is_left_goes_in_a_call_of_its_own() -> None:
    rig = Rig(Provider())
    rig.guard.suppressed = {"key-0", "key-2"}
    await rig.settle(rows(3))
    assert rig.provider.written == [(SEND_EMAIL, ["u1@example.com"])]
    assert rig.kinds == {K.RELEASED: 2, K.ACCEPTED: 1}


async def test_one_suppressed_while_the_call_connects_keeps_it_from_being_made() -> None:
    rig = Rig(Provider())
    rig.provider.connecting = lambda: rig.guard.suppressed.add("key-1")
    await rig.settle(rows(3))
    assert not rig.provider.written
    assert not rig.journal.begun_ids
    assert {n: o.kind for n, o in rig.outcomes.items()} == {1: K.RELEASED}
    assert [w.email.recipient for w in rig.calls.ends.missed] == [
        "u0@example.com",
        "u2@example.com",
    ]
    again, rig.calls.ends.missed = rig.calls.ends.missed, []
    await rig.settle(again)
    assert rig.provider.written == [(SEND_BULK_EMAIL, ["u0@example.com", "u2@example.com"])]


async def test_where_one_beginning_cannot_be_noted_no_byte_leaves() -> None:
    rig = Rig(Provider())
    rig.journal.most = 2
    await rig.settle(rows(4))
    assert not rig.provider.written
    assert rig.kinds == {K.RELEASED: 4}


async def test_a_slot_that_was_missed_while_connecting_is_asked_for_anew() -> None:
    rig = Rig(Provider(answer=lambda _: Missed()))
    await rig.settle(rows(3))
    assert not rig.ended
    assert len(rig.calls.ends.missed) == 3


# Afterwards -------------------------------------------------------------------------------------------------------------


async def test_a_lost_answer_makes_all_unknown_and_counts_as_one_call() -> None:
    rig = Rig(Provider(answer=lambda _: LOST))
    await rig.settle(rows(30))
    assert rig.kinds == {K.UNKNOWN: 30}
    assert len(rig.circuit.take_report().failed) == 1
    rig.circuit.give_back(rig.circuit.take_report())
    await rig.settle([work(n) for n in range(30, 33)])
    assert rig.provider.shape == [30, -1, -1, -1]


@pytest.mark.parametrize(
    "seen", [taken(2), taken(4), Answer(status=200), refusal("InternalFailure", 500)]
)
async def test_an_answer_that_proves_nothing_makes_all_unknown(seen: Answer) -> None:
    rig = Rig(Provider(answer=lambda _: seen))
    await rig.settle(rows(3))
    assert rig.kinds == {K.UNKNOWN: 3}
    assert not any(o.provider_message_id for o in rig.outcomes.values())


async def test_where_no_byte_was_written_none_is_unknown_and_none_is_charged() -> None:
    rig = Rig(Provider(answer=lambda _: AWAY))
    await rig.settle(rows(3))
    assert rig.kinds == {K.THROTTLED: 3}
    assert {o.error_class for o in rig.outcomes.values()} == {"unreachable"}
    assert not rig.journal.begun_ids


async def test_a_throttle_on_bulk_calls_slows_nothing_but_bulk_calls() -> None:
    rig = Rig(Provider(answer=lambda _: refusal("TooManyRequestsException", 429)))
    await rig.settle(rows(3))
    assert rig.kinds == {K.THROTTLED: 3}
    assert all(o.delay_s > 0 for o in rig.outcomes.values())
    assert rig.calls.backing_off_s == 0
    await rig.settle([work(n) for n in range(3, 6)])
    assert rig.provider.shape == [3, -1, -1, -1]


async def test_a_throttled_entry_slows_nothing_but_bulk_calls() -> None:
    rig = Rig(Provider(answer=lambda _: results("SUCCESS", "ACCOUNT_THROTTLED")))
    await rig.settle(rows(2))
    assert rig.kinds == {K.ACCEPTED: 1, K.THROTTLED: 1}
    assert rig.calls.backing_off_s == 0
    await rig.settle([work(2), work(3)])
    assert rig.provider.shape == [2, -1, -1]


@pytest.mark.parametrize(
    "code", ["BadRequestException", "MessageRejected", "AccessDeniedException"]
)
async def test_a_call_that_is_refused_as_a_whole_fails_no_message_but_sends_each_alone(
    code: str,
) -> None:
    """One of them, or the permission for bulk calls, may be the fault: no other message pays for it."""
    rig = Rig(Provider(answer=lambda _: refusal(code)))
    await rig.settle(rows(3))
    assert rig.kinds == {K.THROTTLED: 3}
    assert not any(done.pause for done in rig.ended)
    assert all((o.reason or "").endswith("goes out alone") for o in rig.outcomes.values())
    rig.ended.clear()
    bulk = rig.calls._bulk
    assert bulk is not None
    bulk.gate._closed_until = 0.0
    await rig.settle(rows(5))
    assert sorted(rig.provider.shape) == [-1, -1, -1, 2, 3]


async def test_a_stop_of_the_account_pauses_it_and_charges_nobody() -> None:
    rig = Rig(Provider(answer=lambda _: refusal("AccountSuspendedException")))
    await rig.settle(rows(3))
    assert rig.kinds == {K.ACCOUNT_STOP: 3}
    assert len({done.pause for done in rig.ended}) == 1
    assert rig.calls.trouble.why
    rig.ended.clear()
    await rig.settle(rows(3))
    assert rig.kinds == {K.RELEASED: 2, K.ACCEPTED: 1}
    assert rig.provider.shape == [3, -1]


async def test_credentials_that_aws_refuses_are_looked_up_anew() -> None:
    rig = Rig(Provider(answer=lambda _: refusal("ExpiredTokenException", 403)))
    await rig.settle(rows(3))
    assert rig.provider.forgotten == 1
    assert rig.kinds == {K.ACCOUNT_STOP: 3}


async def test_a_bug_after_the_first_byte_makes_all_unknown() -> None:
    rig = Rig(Provider(answer=lambda _: cast(Any, None)))
    await rig.settle(rows(3))
    assert rig.kinds == {K.UNKNOWN: 3}


# The window of the circuit ----------------------------------------------------------------------------------------------


async def test_the_window_grows_with_calls_that_fill_it_up_to_what_a_bulk_call_may_have() -> None:
    circuit = Circuit(most=200, soon=MAX_ENTRIES)
    sizes = []
    for n in range(6):
        ids = [UUID(int=1000 * n + m) for m in range(200)]
        sizes.append(await circuit.enter_some(ids, patience_s=1.0))
        circuit.reached(begun=time.monotonic())
    assert sizes == [
        UNANSWERED,
        2 * UNANSWERED,
        4 * UNANSWERED,
        8 * UNANSWERED,
        MAX_ENTRIES,
        MAX_ENTRIES,
    ]


async def test_a_failure_makes_the_window_small_again() -> None:
    circuit = Circuit(most=200, soon=MAX_ENTRIES)
    circuit._window = MAX_ENTRIES
    circuit.failed(UUID(int=1), reason="no answer", is_unwritten=False)
    assert circuit.room == UNANSWERED - 1


# The gate ---------------------------------------------------------------------------------------------------------------


def test_the_gate_backs_off_longer_each_time_and_not_for_calls_that_fail_together() -> None:
    now = 0.0
    gate = BulkGate(clock=lambda: now)
    waits = []
    for _ in range(8):
        first = gate.close("throttled")
        assert gate.close("throttled") == first
        assert not gate.is_open
        waits.append(first)
        now += first
        assert gate.is_open
    assert 0.25 <= waits[0] < 0.5
    assert 5.0 <= waits[-1] < 10.0
    gate.passed()
    assert gate.close("throttled") < 0.5


def test_a_message_that_was_left_alone_is_admitted_to_no_bulk_call() -> None:
    gate = BulkGate()
    gate.leave_alone([UUID(int=1)])
    assert not gate.admits(UUID(int=1))
    assert gate.admits(UUID(int=2))
