"""The subscriber: a member of a consumer group that commits only what its user has finished with."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from streams.domain.delivery_events import DeliveryEvent
from streams.subscribers.positions import Positions, Progress
from streams.subscribers.reading import Skipped, Why
from streams.subscribers.subscription import Subscription
from streams.subscribers.window import Window

log = logging.getLogger(__name__)

Seen: TypeAlias = Callable[[Sequence[str]], Awaitable[Collection[str]]]
OnSkipped: TypeAlias = Callable[[Skipped], Awaitable[None]]

_POLL_S: Final = 0.2
_COMMIT_S: Final = 10.0


@dataclass(slots=True, kw_only=True)
class Counts:
    """What became of the records read so far. done: handed out, and the user asked for more."""

    handed_out: int = 0
    done: int = 0
    duplicates: int = 0
    not_wanted: int = 0
    unreadable: int = 0
    unknown_types: int = 0
    commits: int = 0
    commits_lost: int = 0


class _Item(NamedTuple):
    progress: Progress
    offset: int
    event: DeliveryEvent | None


class Subscriber:
    """Iterate over it for one event at a time, or over batches(). To ask for the next says that the last is done.

    At least once: what was handed out and is not done comes again, to this member or another: after an error, a `break`, a
    crash, a rebalance; to the next `async for` over the same subscriber too. Each fact once, as far as the window of remembered ids reaches; for exactly once give `seen`, which
    answers with those of the ids that are in your own store, and store the id with your own change. Records that are no
    event, or of a type that is not known, are given to `skipped`, else only counted; neither ends the iteration. Order holds
    within a recipient's partition. One task iterates; tasks of yours for an event have to end before you ask for the next.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        seen: Seen | None = None,
        skipped: OnSkipped | None = None,
    ) -> None:
        self.counts = Counts()
        self._subscription = subscription
        self._wanted = subscription.wanted()
        self._seen = seen
        self._skipped = skipped
        self._window = Window(subscription.window)
        self._positions = Positions()
        self._fetched: list[Any] = []
        self._waiting: deque[_Item] = deque()
        self._in_hand: list[_Item] = []
        self._done_since = 0
        self._committed_at = 0.0
        self._asking = False
        self._stopping = False
        self._consumer: AIOKafkaConsumer | None = None

    async def __aenter__(self) -> Self:
        """Joins the group. LookupError if there is no such topic, KafkaError without a broker."""
        if self._consumer is not None:
            raise RuntimeError("the subscriber is entered already")
        consumer = self._subscription.consumer()
        try:
            await consumer.start()
            if self._subscription.topic not in await consumer.topics():
                raise LookupError(f"there is no topic {self._subscription.topic}")
        except BaseException:
            await consumer.stop()
            raise
        consumer.subscribe([self._subscription.topic], listener=_Listener(self._revoked))
        self._committed_at = time.monotonic()
        self._consumer = consumer
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commits what is done and leaves the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            await self._commit(consumer)
        except KafkaError:
            log.exception(
                "positions were not committed", extra={"action": "subscriber.not_committed"}
            )
        finally:
            await _stop(consumer)

    def stop(self) -> None:
        """Ends the iteration instead of the next event; what is in hand can be finished. Safe in a signal handler."""
        self._stopping = True

    def __aiter__(self) -> Self:
        """A loop that begins anew, as after an error in the last one, is given first what that one had in hand."""
        self._give_back()
        return self

    async def __anext__(self) -> DeliveryEvent:
        (event,) = await self._next(1)
        return event

    def batches(self) -> "Batches":
        """The events in batches of 1 to `fetch`; to ask for the next batch says that all of the last are done."""
        return Batches(lambda: self._next(self._subscription.fetch), self._give_back)

    async def _next(self, most: int) -> list[DeliveryEvent]:
        consumer = self._consumer
        if consumer is None:
            raise RuntimeError("use it as: async with Subscriber(...) as events")
        if self._asking:
            raise RuntimeError("somebody waits for the next event already: one task iterates")
        self._asking = True
        try:
            self._finish()
            while True:
                if self._is_commit_due():
                    await self._commit(consumer)
                if self._stopping:
                    raise StopAsyncIteration
                events = self._take(most)
                if events:
                    return events
                await self._fill(consumer)
        finally:
            self._asking = False

    def _give_back(self) -> None:
        in_hand, self._in_hand = self._in_hand, []
        self._waiting.extendleft(item for item in reversed(in_hand) if item.progress.held)

    def _finish(self) -> None:
        """What is in hand is done. A partition lost meanwhile is in other hands: its progress is in no position any more."""
        in_hand, self._in_hand = self._in_hand, []
        for item in in_hand:
            item.progress.done = item.offset + 1
        self._done_since += len(in_hand)
        ids = [item.event.id for item in in_hand if item.event is not None]
        self._window.add(ids)
        self.counts.done += len(ids)

    def _take(self, most: int) -> list[DeliveryEvent]:
        """Moves what waits into the hand, up to so many events. Never suspended, so that nothing gets lost halfway."""
        events: dict[str, DeliveryEvent] = {}
        while self._waiting and len(events) < most:
            item = self._waiting.popleft()
            event = item.event
            if event is not None and (event.id in events or event.id in self._window):
                self.counts.duplicates += 1
                item = item._replace(event=None)
            elif event is not None:
                events[event.id] = event
            self._in_hand.append(item)
        if not events:
            self._finish()
        self.counts.handed_out += len(events)
        return list(events.values())

    async def _fill(self, consumer: AIOKafkaConsumer) -> None:
        """Reads on. What was fetched is kept until all of it waits, so that a hook may fail and a task be cancelled."""
        if not self._fetched:
            found = await consumer.getmany(
                timeout_ms=int(_POLL_S * 1000), max_records=self._subscription.fetch
            )
            if not found:
                _check_fetches(consumer)
            self._fetched = [
                (self._positions.progress(partition), record)
                for partition, records in found.items()
                for record in records
            ]
        read = [(progress, record, self._wanted.read(record)) for progress, record in self._fetched]
        ids = [result.id for _, _, result in read if isinstance(result, DeliveryEvent)]
        known = await self._seen(ids) if self._seen is not None and ids else ()
        for _, _, result in read:
            if isinstance(result, Skipped) and self._skipped is not None:
                await self._skipped(result)
        self._fetched = []
        self._waiting.extend(
            _Item(progress, record.offset, self._counted(result, known))
            for progress, record, result in read
            if progress.held
        )

    def _counted(
        self, result: DeliveryEvent | Skipped | None, known: Collection[str]
    ) -> DeliveryEvent | None:
        """The event, unless there is none or it is known."""
        match result:
            case DeliveryEvent(id=event_id) if event_id in known:
                self.counts.duplicates += 1
            case DeliveryEvent():
                return result
            case Skipped(why=Why.UNREADABLE):
                self.counts.unreadable += 1
            case Skipped():
                self.counts.unknown_types += 1
            case None:
                self.counts.not_wanted += 1
        return None

    def _is_commit_due(self) -> bool:
        settings, since = self._subscription, time.monotonic() - self._committed_at
        return self._done_since >= settings.commit_every or (
            self._done_since > 0 and since >= settings.commit_every_s
        )

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        """Positions that cannot be committed now are committed with the next; those of a lost partition never."""
        self._done_since, self._committed_at = 0, time.monotonic()
        offsets = self._positions.uncommitted()
        if not offsets:
            return
        try:
            async with asyncio.timeout(_COMMIT_S):
                await consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            self.counts.commits_lost += 1
        except (KafkaError, TimeoutError) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            self.counts.commits_lost += 1
            log.warning("positions are not committed yet", extra={"action": "subscriber.late"})
        else:
            self.counts.commits += 1
            self._positions.committed(offsets)

    async def _revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """What is done is committed while they are still ours; what waits is dropped, its new owner reads it again."""
        consumer = self._consumer
        try:
            if consumer is not None:
                await self._commit(consumer)
        finally:
            self._positions.lost(partitions)
            self._waiting = deque(item for item in self._waiting if item.progress.held)


class Batches:
    """The iterator of Subscriber.batches()."""

    def __init__(
        self, following: Callable[[], Awaitable[list[DeliveryEvent]]], begin: Callable[[], None]
    ) -> None:
        self._following = following
        self._begin = begin

    def __aiter__(self) -> Self:
        self._begin()
        return self

    async def __anext__(self) -> Sequence[DeliveryEvent]:
        return await self._following()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    def __init__(self, revoked: Callable[[Iterable[TopicPartition]], Awaitable[None]]) -> None:
        self._revoked = revoked

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Positions start where the group committed."""


def _check_fetches(consumer: AIOKafkaConsumer) -> None:
    """Raises what has ended the consumer's fetches: without them getmany() finds nothing, for ever and without a word.

    That happens: uvloop raises RuntimeError for a write to a connection that has just ended, and aiokafka does not foresee it.
    """
    fetches = consumer._fetcher.error_future
    if fetches.done():
        fetches.result()


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """stop() raises again what has ended the fetches, which was told already, before it has closed the connections."""
    try:
        await consumer.stop()
    except KafkaError:
        await consumer._client.close()
