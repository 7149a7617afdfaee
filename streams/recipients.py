"""mail.delivery-events -> facts, suppressions and settled rows in PostgreSQL: a fold that no order and no repetition changes."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from streams.domain.delivery_events import DeliveryEvent
from streams.domain.errors import BadMessage
from streams.domain.event_records import read_event
from streams.domain.records import Record
from streams.domain.unreadable_limit import UnreadableLimit
from streams.folding.counting import STAGE, count
from streams.folding.fold import fold
from streams.intake_watch import IntakeWatch
from streams.ports.kafka_writing import UnreadableRecords
from streams.ports.recipients import Facts, RecordConsumer
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_duties

log = logging.getLogger(__name__)

# Events that have found no message within this time are of somebody else's mail: nothing looks for it any more, though the
# same fact, should it come again once the message is known, still finds it.
UNMATCHED_FOR: Final = timedelta(days=3)
FRESH: Final = timedelta(minutes=2)
MATCH_EVERY_S: Final = 2.0
COUNT_EVERY_S: Final = 5.0
PAGE: Final = 1000
FRESH_PAGES: Final = 20
HALTED_PAUSE_S: Final = 5.0
# So long after it was last at the end of its partitions, the stage says that it is behind.
LATE_AFTER_S: Final = 20.0
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Batch:
    """Records that were read and are not committed yet, with what is left to do of them."""

    records: Sequence[Record]
    events: list[tuple[Record, DeliveryEvent]] = field(default_factory=list)
    unreadable: list[tuple[Record, str]] = field(default_factory=list)


class Recipients:
    """The stage. Owns the consumer, the facts and the place for unreadable records: starts and stops them."""

    name: Final = STAGE

    def __init__(
        self,
        *,
        consumer: RecordConsumer,
        facts: Facts,
        unreadable: UnreadableRecords,
        limit: UnreadableLimit | None = None,
        watch: IntakeWatch | None = None,
    ) -> None:
        self.health = Health(stage=STAGE)
        self._consumer = consumer
        self._facts = facts
        self._unreadable = unreadable
        self._limit = limit or UnreadableLimit()
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._running = False
        self._watch = watch
        self._caught_up_at = time.monotonic()
        self._batch: Batch | None = None
        self._halted = False
        self._fresh_until = _LONG_AGO
        self._looked_until = _LONG_AGO

    async def start(self) -> None:
        self._stopping.clear()
        # A series that begins with its first event hides that event from increase().
        metrics.CONSUMER_HALTED.labels(stage=STAGE).set(0)
        metrics.CONSUMER_GAP.labels(stage=STAGE).inc(0)
        metrics.CONSUMER_RESETS.labels(stage=STAGE).inc(0)
        await self._facts.start()
        await self._consumer.start()

    async def run(self) -> None:
        """Folds until stop()."""
        self._running = True
        duties = {
            "fold": self._fold_next,
            "match_unmatched_events": self.match_unmatched_events,
            "count_unmatched_events": self.count_unmatched_events,
        }
        if self._watch is not None:
            duties["watch"] = partial(self._report, self._watch)
        try:
            await run_duties(duties, health=self.health, stopping=self._stopping)
        finally:
            self._running = False
            self._stopped.set()

    async def stop(self) -> None:
        """Finishes the batch under way, then leaves the group."""
        self._stopping.set()
        if self._running:
            await self._stopped.wait()
        await self._consumer.stop()
        await self._unreadable.stop()
        if self._watch is not None:
            await self._watch.stop()
        await self._facts.stop()

    async def _fold_next(self) -> float:
        """Read, fold, commit; a batch is kept until all of that is done."""
        if self._halted:
            return HALTED_PAUSE_S
        if self._batch is None:
            records = await self._consumer.poll()
            if not records:
                await self._note_progress()
                return 0.0
            self._batch = read(records)
        batch = self._batch
        await self._work_off(batch)
        await self._consumer.commit(batch.records)
        self._batch = None
        await self._note_progress()
        # Only now, so that a restart goes on behind what was set aside.
        if not self._limit.allows(0, time.monotonic()):
            await self._halt(batch.records)
            return HALTED_PAUSE_S
        return 0.0

    async def _note_progress(self) -> None:
        if self._watch is not None and await self._consumer.is_caught_up():
            self._caught_up_at = time.monotonic()

    async def _report(self, watch: IntakeWatch) -> float:
        """Says that this process watches; behind or halted, it is trouble."""
        if self._halted or time.monotonic() - self._caught_up_at > LATE_AFTER_S:
            watch.trouble("late")
        return await watch.report()

    async def _work_off(self, batch: Batch) -> None:
        """Safe to repeat after an error: what is done is taken off the batch, and folding twice changes nothing."""
        if batch.events:
            batch.unreadable += await self._fold(batch.events)
            batch.events = []
        while batch.unreadable:
            record, reason = batch.unreadable[0]
            await self._unreadable.put(record, reason=reason)
            if self._watch is not None:
                self._watch.trouble("unreadable")
            self._limit.add(time.monotonic())
            batch.unreadable.pop(0)

    async def _fold(
        self, events: Sequence[tuple[Record, DeliveryEvent]]
    ) -> list[tuple[Record, str]]:
        """Folds them; returns those that PostgreSQL refuses, found by halving."""
        try:
            with metrics.RECIPIENTS_SECONDS.time():
                work = partial(fold, events=[event for _, event in events])
                folded = await self._facts.transact(work)
        except BadMessage as error:
            if len(events) == 1:
                return [(events[0][0], str(error))]
            half = len(events) // 2
            return [*await self._fold(events[:half]), *await self._fold(events[half:])]
        count(folded)
        return []

    async def _halt(self, last: Sequence[Record]) -> None:
        self._halted = True
        metrics.CONSUMER_HALTED.labels(stage=STAGE).set(1)
        ends = {r.topic_partition: r.offset for r in last}
        where = ", ".join(f"partition {p.partition} offset {ends[p]}" for p in sorted(ends))
        reason = (
            f"more than {self._limit.most} unreadable records within {self._limit.within_s:g} s: they are set aside and "
            f"committed, reading of {last[0].topic} stopped after {where}"
        )
        self.health.not_ready("records", reason)
        log.critical(
            "consumer stops, too many records are unreadable",
            extra={"action": "consumer.halted", "topic": last[0].topic, "after": where},
        )
        await self._consumer.stop()

    async def match_unmatched_events(self) -> float:
        """Folds kept events again whose message is known by now: the fresh ones every time, the older ones page by page.

        Of very many fresh ones, which are of somebody else's mail, the next time goes on where this one ends.
        """
        now = datetime.now(UTC)
        for _ in range(FRESH_PAGES):
            fresh_end = await self._match(after=max(self._fresh_until, now - FRESH), before=now)
            self._fresh_until = fresh_end or _LONG_AGO
            if fresh_end is None:
                break
        oldest = now - UNMATCHED_FOR
        page_end = await self._match(after=max(self._looked_until, oldest), before=now - FRESH)
        self._looked_until = page_end or oldest
        return MATCH_EVERY_S

    async def count_unmatched_events(self) -> float:
        """Sets the gauge of those that are still looked at."""
        after = datetime.now(UTC) - UNMATCHED_FOR
        metrics.RECIPIENTS_UNMATCHED_NOW.set(await self._facts.count_unmatched(after=after))
        return COUNT_EVERY_S

    async def _match(self, *, after: datetime, before: datetime) -> datetime | None:
        """Matches one page; its end, or None if there is no further one."""
        page = await self._facts.unmatched(after=after, before=before, limit=PAGE)
        if page.events:
            count(await self._facts.transact(partial(fold, events=page.events)))
        return page.last_received if page.examined == PAGE else None


def read(records: Sequence[Record]) -> Batch:
    """The events of records; what the relay tells of rows' own life is left out."""
    batch = Batch(records=records)
    for record in records:
        try:
            event = read_event(record.value)
        except BadMessage as error:
            batch.unreadable.append((record, str(error)))
        else:
            if not event.type.is_life_cycle:
                batch.events.append((record, event))
    return batch
