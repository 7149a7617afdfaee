"""Whose turn it is: lanes, tenants, expiry, recipients, partitions."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from streams.domain.addresses import RecipientKey
from streams.domain.pointers import Pointer
from streams.domain.records import TopicPartition
from streams.domain.tenant_queues import TenantQueues
from streams.domain.topics import Lane

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pointer(
    tenant: str = "shop",
    *,
    key: str | None = None,
    lane: Lane = Lane.TRANSACTIONAL,
    expires_s: float | None = None,
    due_s: float = 0,
    partition: int = 0,
    recipients: int = 1,
) -> Pointer:
    return Pointer(
        id=uuid4(),
        tenant=tenant,
        lane=lane,
        recipient_key=RecipientKey(key or uuid4().hex),
        due=NOW + timedelta(seconds=due_s),
        expires=None if expires_s is None else NOW + timedelta(seconds=expires_s),
        recipients=recipients,
        sender_domain="example.com",
        template=None,
        xid=3,
        traceparent=None,
        topic_partition=TopicPartition("t", partition),
        offset=0,
    )


def everything(_: int, __: Lane) -> bool:
    return True


def queued(*pointers: Pointer) -> TenantQueues:
    queues = TenantQueues()
    queues.put(pointers)
    return queues


def test_tenants_take_turns_however_much_one_of_them_has() -> None:
    big = [pointer("big") for _ in range(100)]
    small = [pointer("small"), pointer("tiny")]
    queues = queued(*big, *small)
    taken = queues.take(6, everything)
    assert [p.tenant for p in taken] == ["big", "small", "tiny", "big", "big", "big"]


def test_tenant_that_comes_anew_waits_for_one_message_however_many_others_have_queues() -> None:
    queues = queued(*[pointer(f"t{number}") for number in range(1000) for _ in range(3)])
    queues.take(1500, everything)
    queues.put([pointer("new")])
    assert "new" in [p.tenant for p in queues.take(501, everything)]
    queues.put([pointer("newer")])
    assert "newer" in [p.tenant for p in queues.take(1, everything)]


def test_message_to_many_counts_as_many() -> None:
    queues = queued(
        *[pointer("wide", recipients=10) for _ in range(9)], *[pointer("narrow") for _ in range(90)]
    )
    taken = queues.take(55, everything)
    assert [p.tenant for p in taken].count("wide") == 5


def test_tenant_that_was_put_back_is_not_charged() -> None:
    queues = queued(*[pointer(t) for t in ("a", "b", "c") for _ in range(5)])
    for _ in range(3):
        taken = queues.take(7, everything)
        for p in taken:
            queues.free(p.recipient_key)
        queues.put(taken[1:])
    assert sorted(p.tenant for p in queues.take(3, everything)) == ["a", "b", "c"]


def test_partition_that_had_to_wait_gives_no_right_to_all_of_the_rate_afterwards() -> None:
    queues = queued(
        *[pointer("stale", partition=1) for _ in range(50)], *[pointer("other") for _ in range(100)]
    )
    queues.take(40, lambda number, _: number == 0)
    assert [p.tenant for p in queues.take(10, everything)].count("stale") == 5


def test_coming_again_and_again_gains_nothing() -> None:
    queues = queued(*[pointer("steady") for _ in range(100)])
    served: list[Pointer] = []
    for _ in range(40):
        if not any(p.tenant == "coming" for p in served[-1:]):
            queues.put([pointer("coming")])
        served += queues.take(1, everything)
    assert 19 <= [p.tenant for p in served].count("coming") <= 21


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 50)), min_size=1, max_size=200))
def test_tenants_that_wait_all_the_time_get_the_same_to_a_message(
    messages: list[tuple[str, int]],
) -> None:
    queues = queued(*[pointer(tenant, recipients=count) for tenant, count in messages])
    left = Counter(tenant for tenant, _ in messages)
    got = dict.fromkeys(left, 0)
    while all(left.values()):
        [taken] = queues.take(1, everything)
        got[taken.tenant] += taken.recipients
        left[taken.tenant] -= 1
        assert max(got.values()) - min(got.values()) <= 50


def test_turn_goes_on_where_the_last_take_ended() -> None:
    queues = queued(*[pointer(t) for t in ("a", "a", "b", "b")])
    assert [p.tenant for n in range(4) for p in queues.take(1, everything)] == ["a", "b", "a", "b"]


def test_what_expires_first_goes_first_within_a_tenant() -> None:
    never, late, soon = pointer(), pointer(expires_s=60), pointer(expires_s=5)
    assert queued(never, late, soon).take(3, everything) == [soon, late, never]


def test_what_is_due_first_goes_first_where_nothing_expires() -> None:
    later, sooner, same = pointer(due_s=2), pointer(due_s=1), pointer(due_s=1)
    assert queued(later, sooner, same).take(3, everything) == [sooner, same, later]


def test_transactional_goes_before_bulk() -> None:
    bulk = [pointer("a", lane=Lane.BULK) for _ in range(3)]
    mail = pointer("b")
    queues = queued(*bulk, mail)
    assert queues.take(2, everything) == [mail, bulk[0]]
    assert (queues.size(Lane.BULK), queues.size(Lane.TRANSACTIONAL)) == (2, 0)


def test_recipient_has_one_pointer_out_at_a_time() -> None:
    first, second, other = pointer(key="1" * 32), pointer(key="1" * 32), pointer()
    queues = queued(first, second, other)
    assert queues.take(9, everything) == [first, other]
    assert queues.take(9, everything) == []
    assert len(queues) == 1
    queues.free(first.recipient_key)
    assert queues.take(9, everything) == [second]


def test_many_pointers_of_one_recipient_all_come_out_one_after_the_other() -> None:
    waiting = [pointer(key="1" * 32, due_s=n) for n in range(20)]
    queues = queued(*waiting)
    came = []
    while taken := queues.take(9, everything):
        assert len(taken) == 1
        came += taken
        queues.free(taken[0].recipient_key)
    assert came == waiting
    assert len(queues) == 0


def test_pointer_that_is_put_back_keeps_its_place() -> None:
    first, second = pointer(due_s=1), pointer(due_s=2)
    queues = queued(first, second)
    [taken] = queues.take(1, everything)
    queues.free(taken.recipient_key)
    queues.put([taken])
    assert queues.take(2, everything) == [first, second]


def test_partition_that_is_not_usable_waits_alone() -> None:
    stale, fresh = pointer(partition=1), pointer(partition=2, due_s=5)
    queues = queued(stale, fresh)
    assert queues.take(9, lambda number, _: number == 2) == [fresh]
    assert queues.take(9, lambda number, _: number == 2) == []
    assert queues.take(9, everything) == [stale]


def test_cleared_queues_are_empty_and_a_recipient_under_a_call_stays_busy() -> None:
    first, second = pointer(key="1" * 32), pointer(key="1" * 32)
    queues = queued(first, second, pointer())
    queues.take(1, everything)
    queues.clear()
    assert len(queues) == 0
    again = pointer(key="1" * 32)
    queues.put([again])
    assert queues.take(9, everything) == []
    queues.free(first.recipient_key)
    assert queues.take(9, everything) == [again]
