"""Requests that accept e-mails, written many at a time: whoever comes while a statement is under way shares the next one."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from streams.domain.errors import Overloaded, Unavailable
from streams.ports.accepting import Accepted, AcceptRequest, AcceptStore
from streams.runtime import metrics

MOST_TOGETHER: Final = 200
# A request of its own from so many e-mails or bytes on.
LARGE: Final = 20
LARGE_BYTES: Final = 1024 * 1024


class _Waiting(NamedTuple):
    request: AcceptRequest
    size: int
    answer: "asyncio.Future[Accepted]"

    @property
    def is_large(self) -> bool:
        return len(self.request.rows) >= LARGE or self.size >= LARGE_BYTES


class Writer:
    """accept() answers once its rows are committed. most: requests that may wait, half of them of one tenant; statements: those
    at a time. Tenants take turns, so that one that posts much delays another by a statement, not by its queue.

    Nothing here waits longer than the store does. A caller that gives up while its request waits takes it back; one that gives
    up while it is written does not learn what became of it.
    """

    def __init__(self, store: AcceptStore, *, most: int, statements: int) -> None:
        self._store = store
        self._most = most
        self._most_of_one = max(most // 2, 1)
        self._statements = statements
        # By tenant; who comes first has the next turn.
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._count = 0
        self._writing: set[asyncio.Task[None]] = set()
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    async def close(self, *, within_s: float) -> None:
        """Nothing is taken any more; who waits is told, what is under way ends, or is broken off."""
        self._is_open = False
        while self._queues:
            _fail([self._take()], Overloaded("this process is stopping"))
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=within_s)
            for task in late:
                task.cancel()

    async def accept(self, request: AcceptRequest, *, size: int) -> Accepted:
        """What was committed of it. size: bytes of its body. Overloaded: too many wait; Unavailable; BadMessage."""
        if not self._is_open:
            raise Overloaded("this process is stopping")
        queue = self._queues.get(request.tenant, ())
        if self._count >= self._most or len(queue) >= self._most_of_one:
            raise Overloaded(f"{self._count} requests wait for the database")
        one = _Waiting(request, size, asyncio.get_running_loop().create_future())
        self._queues.setdefault(request.tenant, deque()).append(one)
        self._counted(1)
        self._begin()
        return await one.answer

    def _counted(self, change: int) -> None:
        self._count += change
        metrics.API_WAITING.set(self._count)

    def _take(self) -> _Waiting:
        """The first request of the tenant whose turn it is; the tenant goes to the end of the row."""
        tenant, queue = self._queues.popitem(last=False)
        one = queue.popleft()
        if queue:
            self._queues[tenant] = queue
        self._counted(-1)
        return one

    def _peek(self) -> _Waiting:
        return next(iter(self._queues.values()))[0]

    def _begin(self) -> None:
        if self._queues and len(self._writing) < self._statements:
            task = asyncio.create_task(self._write())
            self._writing.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._writing.discard(task)
        self._begin()

    async def _write(self) -> None:
        """Everything that waits, in turns, until nothing does."""
        while batch := self._next():
            try:
                answers = await self._store.accept([one.request for one in batch])
            except Unavailable as error:
                _fail(batch, error)
            except BaseException:
                _fail(batch, Unavailable("the statement was broken off"))
                raise
            else:
                for one, answer in zip(batch, answers, strict=True):
                    _tell(one, answer)

    def _next(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        while self._queues and len(batch) < MOST_TOGETHER:
            if batch and self._peek().is_large:
                break
            one = self._take()
            if one.answer.done():  # nobody waits for it any more
                continue
            batch.append(one)
            if one.is_large:
                break
        # In one order everywhere, so that two statements do not wait for each other.
        batch.sort(key=lambda one: (one.request.tenant, one.request.idempotency_key or ""))
        if batch:
            metrics.API_STATEMENT_REQUESTS.observe(len(batch))
        return batch


def _tell(one: _Waiting, answer: Accepted | Exception) -> None:
    if one.answer.done():
        return
    if isinstance(answer, Exception):
        one.answer.set_exception(answer)
    else:
        one.answer.set_result(answer)


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for one in batch:
        _tell(one, error)
