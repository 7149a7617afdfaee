"""Leases of shards: counted from before the question, given to others when there are too many, lost without a word."""
# ruff: noqa: ARG002  the fake takes what the port gives

from collections.abc import Sequence
from typing import Any, cast

import pytest

from streams.domain.errors import Unavailable
from streams.domain.polling import LEASE_S, OWN_LEASE_S, Renewal, fair_share, surplus, wanted
from streams.relay_polling_shards import Shards


class Store:
    """PostgreSQL whose answers take a while."""

    def __init__(self, renewal: Renewal | None) -> None:
        self.renewal = renewal
        self.now = 100.0
        self.answers_after_s = 0.0
        self.released: list[int] = []
        self.prepared: list[int] = []

    def clock(self) -> float:
        return self.now

    async def prepare(self, shards: int) -> None:
        self.prepared.append(shards)

    async def renew(self, shards: int) -> Renewal | None:
        self.now += self.answers_after_s
        return self.renewal

    async def claim(self, shards: int, most: int) -> list[int]:
        return list(range(most))

    async def release(self, held: Sequence[int]) -> None:
        self.released += held

    async def leave(self) -> None: ...


def shards_of(store: Store, count: int) -> Shards:
    return Shards(cast("Any", store), count=count, clock=store.clock)


def free(number: int, pollers: int = 1) -> Renewal:
    return Renewal(held=[], free=number, pollers=pollers)


async def test_a_lease_is_counted_from_before_the_question() -> None:
    store = Store(free(2))
    shards = shards_of(store, 2)
    store.answers_after_s = 3.0
    assert await shards.claim()
    assert (shards.held, shards.lapsed) == ([0, 1], False)
    store.now = 100.0 + OWN_LEASE_S
    assert shards.lapsed
    with pytest.raises(Unavailable, match="another relay may read them"):
        shards.check()


async def test_an_answer_that_comes_after_the_lease_has_run_out_is_no_lease() -> None:
    store = Store(free(1))
    store.answers_after_s = OWN_LEASE_S
    shards = shards_of(store, 1)
    await shards.claim()
    assert shards.lapsed


async def test_shards_that_are_not_renewed_are_lost_at_once() -> None:
    store = Store(free(2))
    shards = shards_of(store, 2)
    await shards.claim()
    store.renewal = Renewal(held=[0], free=0, pollers=2)
    with pytest.raises(Unavailable):
        await shards.renew()
    assert shards.lapsed


async def test_another_relay_gets_its_share_when_it_comes() -> None:
    store = Store(free(4))
    shards = shards_of(store, 4)
    await shards.claim()
    store.renewal = Renewal(held=[0, 1, 2, 3], free=0, pollers=2)
    await shards.renew()
    assert shards.regroup
    await shards.claim()
    assert (shards.held, store.released, shards.regroup) == ([0, 1], [2, 3], False)


async def test_shards_of_another_number_are_prepared_and_none_is_held() -> None:
    store = Store(None)
    shards = shards_of(store, 3)
    assert not await shards.claim()
    assert store.prepared == [3]
    assert shards.lapsed


@pytest.mark.parametrize(("shards", "pollers"), [(1, 1), (1, 3), (4, 3), (12, 5), (64, 1)])
def test_all_shards_are_read_and_none_is_handed_to_and_fro(shards: int, pollers: int) -> None:
    share = fair_share(shards, pollers)
    assert share * pollers >= shards
    full = Renewal(held=list(range(share)), free=1, pollers=pollers)
    assert (surplus(full, shards), wanted(full, shards)) == ([], 0)


def test_the_holder_gives_up_before_the_server_does() -> None:
    assert OWN_LEASE_S < LEASE_S
