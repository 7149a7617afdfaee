"""Requests that share statements: who goes when, who is told what."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from streams.accepting.writer import Writer
from streams.domain.errors import Overloaded, Unavailable
from streams.ports.accepting import Accepted, AcceptRequest, AcceptStore, Decision


class Store:
    """Writes when it is let; down: it cannot."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.down = False
        self.statements: list[list[str]] = []

    async def accept(self, requests: Sequence[AcceptRequest]) -> Sequence[Accepted | Exception]:
        self.statements.append([str(request.idempotency_key) for request in requests])
        await self.may.wait()
        if self.down:
            raise Unavailable("away")
        return [Accepted(decision=Decision.DECIDED) for _ in requests]


def made(store: Store, *, most: int = 1000) -> Writer:
    writer = Writer(cast(AcceptStore, store), most=most, statements=1)
    writer.open()
    return writer


def post(writer: Writer, tenant: str, name: str, rows: int = 1) -> "asyncio.Task[Accepted]":
    request = AcceptRequest(
        tenant=tenant, test=False, idempotency_key=name, digest=b"", rows=[{}] * rows
    )
    return asyncio.create_task(writer.accept(request, size=10))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_comes_while_a_statement_is_under_way_shares_the_next() -> None:
    store = Store()
    writer = made(store)
    first = post(writer, "a", "1")
    await settled()
    rest = [post(writer, "a", str(n)) for n in range(2, 6)]
    await settled()
    store.may.set()
    await asyncio.gather(first, *rest)
    assert store.statements == [["1"], ["2", "3", "4", "5"]]


async def test_a_tenant_with_many_large_batches_delays_another_by_one_of_them() -> None:
    store = Store()
    writer = made(store)
    batches = [post(writer, "big", f"b{n}", rows=500) for n in range(10)]
    await settled()
    small = post(writer, "small", "s")
    await settled()
    store.may.set()
    await asyncio.gather(small, *batches)
    assert store.statements[:3] == [["b0"], ["b1"], ["s"]]


async def test_one_tenant_fills_half_of_the_room() -> None:
    store = Store()
    writer = made(store, most=10)
    tasks = [post(writer, "a", "0")]
    await settled()
    tasks += [post(writer, "a", str(n)) for n in range(1, 8)]
    await settled()
    refused = [task for task in tasks if task.done()]
    # One is being written, five wait.
    assert len(refused) == 2
    assert all(isinstance(task.exception(), Overloaded) for task in refused)
    other = post(writer, "b", "x")
    store.may.set()
    assert (await other).decision is Decision.DECIDED
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_request_that_was_given_up_while_it_waited_is_not_written() -> None:
    store = Store()
    writer = made(store)
    first = post(writer, "a", "1")
    await settled()
    second = post(writer, "a", "2")
    await settled()
    second.cancel()
    await settled()
    store.may.set()
    await first
    assert store.statements == [["1"]]


async def test_a_store_that_is_away_is_told_to_all_of_the_statement_and_the_next_goes_on() -> None:
    store = Store()
    store.down = True
    writer = made(store)
    tasks = [post(writer, "a", str(n)) for n in range(3)]
    await settled()
    store.may.set()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(found, Unavailable)
    store.down = False
    assert (await post(writer, "a", "x")).decision is Decision.DECIDED


async def test_a_close_tells_who_waits_and_lets_end_what_is_written() -> None:
    store = Store()
    writer = made(store)
    first = post(writer, "a", "1")
    await settled()
    second = post(writer, "b", "2")
    await settled()
    closing = asyncio.create_task(writer.close(within_s=10))
    await settled()
    assert isinstance(second.exception(), Overloaded)
    store.may.set()
    await closing
    assert (await first).decision is Decision.DECIDED
    with pytest.raises(Overloaded):
        await post(writer, "a", "3")


async def test_a_statement_that_hangs_is_broken_off_by_the_close() -> None:
    store = Store()
    writer = made(store)
    only: Any = post(writer, "a", "1")
    await settled()
    await writer.close(within_s=0.01)
    with pytest.raises(Unavailable):
        await only
