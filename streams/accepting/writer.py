"""Requests that accept e-mails, written many at a time: whoever comes while a statement is under way shares the next one."""

import asyncio
from collections import deque
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


class Writer:
    """accept() answers once its rows are committed. most: requests that may wait; statements: those at a time.

    Nothing here waits longer than the store does. A caller that gives up while its request waits takes it back; one that gives
    up while it is written does not learn what became of it.
    """

    def __init__(self, store: AcceptStore, *, most: int, statements: int) -> None:
        self._store = store
        self._most = most
        self._statements = statements
        self._waiting: deque[_Waiting] = deque()
        self._writing: set[asyncio.Task[None]] = set()
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    async def close(self, *, within_s: float) -> None:
        """Nothing is taken any more; who waits is told, what is under way ends, or is broken off."""
        self._is_open = False
        while self._waiting:
            _fail([self._waiting.popleft()], Overloaded("this process is stopping"))
        metrics.API_WAITING.set(0)
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=within_s)
            for task in late:
                task.cancel()

    async def accept(self, request: AcceptRequest, *, size: int) -> Accepted:
        """What was committed of it. size: bytes of its body. Overloaded: too many wait; Unavailable; BadMessage."""
        if not self._is_open:
            raise Overloaded("this process is stopping")
        if len(self._waiting) >= self._most:
            raise Overloaded(f"{self._most} requests wait for the database")
        one = _Waiting(request, size, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._begin()
        try:
            return await one.answer
        finally:
            metrics.API_WAITING.set(len(self._waiting))

    def _begin(self) -> None:
        if self._waiting and len(self._writing) < self._statements:
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
        while self._waiting and len(batch) < MOST_TOGETHER:
            one = self._waiting[0]
            is_large = len(one.request.rows) >= LARGE or one.size >= LARGE_BYTES
            if batch and is_large:
                break
            self._waiting.popleft()
            if one.answer.done():  # nobody waits for it any more
                continue
            batch.append(one)
            if is_large:
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
