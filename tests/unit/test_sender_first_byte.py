"""What keeps a call from being made in the moment before its first byte."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import pytest

from streams.domain.attempts import OutcomeKind
from streams.domain.ses_answers import Answer, SignedCall
from streams.sending.calls import Calls, CallSettings
from streams.sending.circuit import Circuit
from streams.sending.signals import Signal
from streams.sending.work import Done
from tests.unit.test_sender_calls import POINTER, work_of


class NothingNoted:
    def begun(self, _: Any) -> None: ...


@dataclass
class Guard:
    """Suppresses, or is too old to be asked, from the moment that it is told to."""

    sequence: int | None = None
    is_usable: bool = True

    def usable(self, *_: Any) -> bool:
        return self.is_usable

    def hit(self, *_: Any) -> int | None:
        return self.sequence


class SlowToConnect:
    """While it connects, a suppression comes in, or the table of them gets old."""

    def __init__(self, guard: Guard, sequence: int | None, *, gets_old: bool = False) -> None:
        self._guard = guard
        self._sequence = sequence
        self._gets_old = gets_old
        self.written = 0

    async def sign(self, body: bytes) -> SignedCall:
        return SignedCall(body=body, headers={})

    async def send(self, *_: Any, on_begin: Callable[[], None], **__: Any) -> Answer:
        self._guard.sequence = self._sequence
        self._guard.is_usable = not self._gets_old
        on_begin()
        self.written += 1
        return Answer(status=200, message_id="m-1")


class Cancelled:
    """Something inside it is cancelled, and nobody asked for that."""

    def __init__(self, *, begins: bool) -> None:
        self._begins = begins
        self.written = 0

    async def sign(self, body: bytes) -> SignedCall:
        return SignedCall(body=body, headers={})

    async def send(self, *_: Any, on_begin: Callable[[], None], **__: Any) -> Answer:
        if self._begins:
            on_begin()
            self.written += 1
        raise asyncio.CancelledError


async def outcome_of(
    *, sequence: int | None, overruled: int | None = None, gets_old: bool = False
) -> tuple[Done, int]:
    guard = Guard()
    provider = SlowToConnect(guard, sequence, gets_old=gets_old)
    return await outcome_with(provider, guard, overruled=overruled)


async def outcome_with(
    provider: SlowToConnect | Cancelled, guard: Guard, *, overruled: int | None = None
) -> tuple[Done, int]:
    calls = Calls(
        CallSettings(configuration_set="mailstreams", most=4, call_s=5.0),
        provider=cast(Any, provider),
        guard=cast(Any, guard),
        journal=cast(Any, NothingNoted()),
        circuit=Circuit(),
        work=Signal(),
        now=lambda: 0.0,
    )
    ended: list[Done] = []
    came = Signal()

    def done(what: Done) -> None:
        ended.append(what)
        came.set()

    calls.ends.done = done
    work = work_of(POINTER)
    work.overruled = overruled
    calls.start(work)
    await came.wait(60.0)
    assert ended, "it was forgotten"
    assert isinstance(work.email.id, UUID)
    return ended[0], provider.written


async def test_a_suppression_that_comes_in_while_the_call_connects_stops_it_before_its_first_byte() -> (
    None
):
    ended, written = await outcome_of(sequence=7)
    assert ended.outcome.kind is OutcomeKind.RELEASED
    assert written == 0


async def test_a_suppression_that_the_database_overruled_stops_nothing() -> None:
    ended, written = await outcome_of(sequence=7, overruled=7)
    assert ended.outcome.kind is OutcomeKind.ACCEPTED
    assert written == 1


async def test_a_table_that_gets_old_while_the_call_connects_stops_it_before_its_first_byte() -> (
    None
):
    """The process was frozen meanwhile, or the partition is another sender's now."""
    ended, written = await outcome_of(sequence=None, gets_old=True)
    assert ended.outcome.kind is OutcomeKind.RELEASED
    assert written == 0


@pytest.mark.parametrize(
    ("begins", "kind"), [(False, OutcomeKind.RELEASED), (True, OutcomeKind.UNKNOWN)]
)
async def test_a_call_that_something_else_cancels_is_not_forgotten(
    begins: bool, kind: OutcomeKind
) -> None:
    ended, _ = await outcome_with(Cancelled(begins=begins), Guard())
    assert ended.outcome.kind is kind


async def test_without_a_suppression_the_call_is_made() -> None:
    ended, written = await outcome_of(sequence=None)
    assert ended.outcome.kind is OutcomeKind.ACCEPTED
    assert written == 1
