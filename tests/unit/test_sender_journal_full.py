"""A journal that cannot be written: nothing is claimed or lost, and the other senders keep their permits."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from streams.domain.addresses import RecipientKey
from streams.domain.attempts import AttemptId, OutcomeKind
from streams.domain.circuit import CircuitState, Report
from streams.domain.errors import Unavailable
from streams.domain.pacing import Grant, ServerClock
from streams.sending.no_journal import NoJournal
from tests.unit.test_sender_calls import POINTER
from tests.unit.test_sender_dispatch import Outbox, Rig

POINTERS = [
    replace(
        POINTER, id=UUID(int=n), recipient_key=RecipientKey(f"{n:032x}"), traceparent=None, offset=n
    )
    for n in range(3)
]


class FullJournal(NoJournal):
    """Takes nothing while it is full."""

    def __init__(self) -> None:
        self.is_full = True

    def claiming(self, _: Sequence[tuple[UUID, AttemptId]]) -> None:
        if self.is_full:
            raise Unavailable("attempt journal: no space left on device")


@dataclass
class CountingOutbox(Outbox):
    """How many permits each question asked for."""

    asked: list[int] = field(default_factory=list)

    async def take_permits(
        self, _: str, costs: Sequence[float], *, report: Report, **more: Any
    ) -> tuple[Grant, ServerClock, CircuitState]:
        self.asked.append(len(costs))
        return await super().take_permits(_, costs, report=report, **more)


async def test_a_full_disk_costs_one_permit_a_try_and_all_go_out_once_there_is_room() -> None:
    outbox, journal = CountingOutbox(), FullJournal()
    rig = Rig(outbox)
    rig.dispatch._journal = journal
    rig.queue(*POINTERS)
    for _ in range(3):
        with pytest.raises(Unavailable, match="no space left"):
            await rig.dispatch.step()
    assert outbox.asked == [3, 1, 1]
    assert rig.ended == []
    journal.is_full = False
    await rig.dispatch.step()
    await rig.dispatch.step()
    await rig.idle()
    assert outbox.asked == [3, 1, 1, 1, 2]
    assert [outcome.kind for outcome in rig.ended] == [OutcomeKind.ACCEPTED] * 3
