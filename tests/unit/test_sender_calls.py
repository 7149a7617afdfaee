"""The last look before a call."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from streams.domain.attempts import Email
from streams.domain.pacing import Slot
from streams.domain.pointers import Pointer
from streams.domain.records import TopicPartition
from streams.domain.templates import Content
from streams.domain.topics import Lane
from streams.sending.first_byte import FirstByte, NotBegun
from streams.sending.last_look import Look, last_look, lease_clock
from streams.sending.no_journal import NoJournal
from streams.sending.work import Work
from tests.unit.test_sender_mail_content import EMAIL

FAR = 1e12
POINTER = Pointer(
    id=UUID(int=1),
    tenant="shop",
    lane=Lane.BULK,
    recipient_key=EMAIL.recipient_key,
    due=datetime(2026, 1, 1, tzinfo=UTC),
    expires=None,
    recipients=1,
    sender_domain="example.com",
    template=None,
    xid=3,
    traceparent=None,
    topic_partition=TopicPartition("mail.outbox.bulk", 0),
    offset=0,
)


class Unsuppressed:
    def usable(self, _: int, __: Lane) -> bool:
        return True

    def hit(self, *_: Any) -> None:
        return None


def work_of(pointer: Pointer, email: Email = EMAIL) -> Work:
    return Work(
        email=email,
        content=Content(subject="Hello", text="Hi", html=None),
        pointer=pointer,
        slot=Slot(earliest=0.0, latest=FAR),
        claimed_at=0.0,
        begin_by=FAR,
    )


@pytest.mark.parametrize(
    ("server_is_ahead_s", "look"), [(-3600, Look.GO), (0, Look.GO), (3600, Look.EXPIRED)]
)
async def test_expiry_counts_by_the_server_s_clock(server_is_ahead_s: float, look: Look) -> None:
    now = datetime.now(UTC)

    def seen(pointer: Pointer) -> Look:
        return last_look(
            work_of(pointer),
            guard=cast(Any, Unsuppressed()),
            now=lambda: now.timestamp() + server_is_ahead_s,
        )

    assert seen(replace(POINTER, expires=now + timedelta(seconds=60))) is look
    behind = replace(POINTER, expires=now - timedelta(seconds=60))
    assert seen(behind) is (Look.GO if server_is_ahead_s < 0 else Look.EXPIRED)


async def test_a_call_whose_lease_is_over_when_its_connection_is_there_does_not_begin() -> None:
    """The last look was long ago: the process was frozen since."""
    first_byte = FirstByte(guard=cast(Any, Unsuppressed()), journal=NoJournal())
    work = work_of(POINTER)
    first_byte.begin(work, datetime.now(UTC))
    assert work.begun
    late = work_of(POINTER)
    late.begin_by = lease_clock() - 0.001
    with pytest.raises(NotBegun) as refused:
        first_byte.begin(late, datetime.now(UTC))
    assert refused.value.look is Look.LEASE
    assert not late.begun


def test_leases_go_on_while_the_machine_is_suspended() -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no such clock")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= lease_clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)
