"""Asks everything that `mailstreams status` shows; what cannot be seen is told, and the rest all the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final

from streams.domain import overview
from streams.domain.errors import MailstreamsError
from streams.domain.overview import Line, Waiting
from streams.domain.topics import Lane, Topics
from streams.ports.overview import OverviewDatabase, OverviewKafka

# One part; Kafka's client alone waits 5 s for an answer.
ANSWER_S: Final = 8.0
HEARTBEATS_EVERY: Final = timedelta(seconds=1)
_NOTHING: Final = Waiting(
    overdue={}, oldest_due={}, oldest_ambiguous=None, oldest_dead_letter=None, refused_by_relay=0
)
_Look = Callable[[], Awaitable[Line | Sequence[Line]]]


class Overview:
    """Reads and judges; changes nothing."""

    def __init__(
        self,
        *,
        database: Callable[[], AbstractAsyncContextManager[OverviewDatabase]],
        kafka: OverviewKafka,
        groups: Mapping[str, Sequence[str]],
        topics: Topics,
        slot: str,
        polls: bool,
        staleness_s: float,
    ) -> None:
        self._database = database
        self._kafka = kafka
        self._groups = groups
        self._topics = topics
        self._slot = slot
        self._polls = polls
        self._staleness_s = staleness_s

    async def look(self) -> list[Line]:
        """In the order in which a person asks: what waits, why, what is wrong."""
        of_database, of_kafka = await asyncio.gather(self._postgres(), self._of_kafka())
        return [*of_database, *of_kafka]

    async def _postgres(self) -> list[Line]:
        try:
            async with self._database() as store:
                return [line async for line in self._parts(store)]
        except MailstreamsError as error:
            return [overview.unseen("postgres", str(error))]

    async def _parts(self, store: OverviewDatabase) -> AsyncIterator[Line]:
        waiting = _NOTHING

        async def backlog() -> Sequence[Line]:
            nonlocal waiting
            waiting = await store.waiting()
            found = await store.backlog(heartbeats_every=HEARTBEATS_EVERY)
            return overview.judge_backlog(found, waiting)

        async def pauses() -> Sequence[Line]:
            return overview.judge_pauses(await store.pauses())

        async def rates() -> Sequence[Line]:
            return overview.judge_rates(await store.rates())

        async def relay() -> Line:
            if self._polls:
                return overview.judge_polling(await store.polling())
            return overview.judge_slot(await store.slot(), self._slot)

        of_backlog = await _seen("backlog", backlog)
        for lane in Lane:

            async def pending(lane: Lane = lane) -> Line:
                return overview.judge_pending(lane, await store.oldest_pending(lane), waiting)

            for line in await _seen(f"pending {lane}", pending):
                yield line
        for part, look in (("pauses", pauses), ("rate", rates)):
            for line in await _seen(part, look):
                yield line
        for line in (*of_backlog, *await _seen("relay", relay)):
            yield line

    async def _of_kafka(self) -> list[Line]:
        async def lags() -> Sequence[Line]:
            return overview.judge_lags(await self._kafka.lags(self._groups))

        async def heartbeats() -> Line:
            ages = await self._kafka.heartbeat_ages(self._topics.suppressions)
            return overview.judge_suppressions(ages, bound_s=self._staleness_s)

        found = await asyncio.gather(_seen("lag", lags), _seen("suppressions", heartbeats))
        return [line for lines in found for line in lines]


async def _seen(part: str, look: _Look) -> Sequence[Line]:
    """What it tells, or that it could not be seen."""
    try:
        async with asyncio.timeout(ANSWER_S):
            found = await look()
    except MailstreamsError as error:
        return [overview.unseen(part, str(error))]
    except TimeoutError:
        return [overview.unseen(part, f"no answer for {ANSWER_S:g} s")]
    return [found] if isinstance(found, Line) else found
