"""How a sender ends: what is under way is waited for and written, whatever ended it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from streams.domain.attempts import AttemptId, Outcome, OutcomeKind, Recorded
from streams.domain.errors import Misconfigured
from streams.domain.ses_answers import Answer, SignedCall
from streams.sender import Sender, SenderSettings
from tests.unit.test_sender_calls import POINTER, work_of


@dataclass
class Outbox:
    """Keeps the outcomes."""

    recorded: list[Outcome] = field(default_factory=list)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def now(self) -> float:
        return time.time()

    async def read_clock(self) -> None: ...

    async def record(self, outcomes: Sequence[Outcome]) -> dict[AttemptId, Recorded]:
        self.recorded += outcomes
        return {outcome.attempt_id: Recorded.APPLIED for outcome in outcomes}


@dataclass
class Pointers:
    """Another process takes our name in the group once `taken_over` is set."""

    taken_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, **_: Any) -> None: ...

    async def stop(self) -> None: ...

    async def fetch(self, *_: Any, **__: Any) -> list[Any]:
        await self.taken_over.wait()
        raise Misconfigured("another process is sender-0 in the group")

    async def commit(self, _: Any) -> bool:
        return False

    async def places(self) -> list[Any]:
        return []

    def partitions(self) -> dict[str, int]:
        return {}


class Suppressions:
    """Suppresses nobody."""

    def tell_time(self, _: Any) -> None: ...

    def own(self, _: Any) -> None: ...

    async def follow(self) -> float:
        return 0.01

    def compare(self, _: Any) -> None: ...

    def usable(self, *_: Any) -> bool:
        return True

    def missing(self) -> None:
        return None

    def hit(self, *_: Any) -> None:
        return None

    def overtaken(self) -> dict[Any, Any]:
        return {}

    async def stop(self) -> None: ...


@dataclass
class Provider:
    """Answers once it is let."""

    region: str = "eu-central-1"
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def sign(self, body: bytes) -> SignedCall:
        return SignedCall(body=body, headers={})

    async def send(self, *_: Any, on_begin: Callable[[], None], **__: Any) -> Answer:
        on_begin()
        self.begun.set()
        await self.answers.wait()
        return Answer(status=200, message_id="m-1")


class Unreadable:
    async def stop(self) -> None: ...


async def test_a_sender_that_ends_by_an_error_waits_for_its_calls_and_writes_their_outcomes() -> (
    None
):
    outbox, pointers, provider = Outbox(), Pointers(), Provider()
    sender = Sender(
        SenderSettings(
            configuration_set="mailstreams",
            max_in_flight=4,
            lease_s=90.0,
            call_s=60.0,
            drain_s=120.0,
        ),
        outbox=cast(Any, outbox),
        provider=cast(Any, provider),
        pointers=cast(Any, pointers),
        suppressions=cast(Any, Suppressions()),
        unreadable=cast(Any, Unreadable()),
    )
    await sender.start()
    running = asyncio.create_task(sender.run())
    sender._calls.start(work_of(POINTER))
    await asyncio.wait_for(provider.begun.wait(), 60.0)
    pointers.taken_over.set()
    with pytest.raises(Misconfigured):
        await asyncio.wait_for(running, 60.0)
    stopping = asyncio.create_task(sender.stop())
    for _ in range(20):
        await asyncio.sleep(0)
    provider.answers.set()
    await asyncio.wait_for(stopping, 60.0)
    assert [outcome.kind for outcome in outbox.recorded] == [OutcomeKind.ACCEPTED]
