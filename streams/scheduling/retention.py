"""What is old is removed: partitions of the feed that Kafka has, contents of mail that has ended, then its rows."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from streams.domain.schedule import FIRST_ID
from streams.domain.upkeep import Drop, Kept
from streams.ports.upkeep import OldRows
from streams.runtime import metrics
from streams.runtime.settings import Settings

log = logging.getLogger(__name__)

BATCH: Final = 500
BATCHES_A_TURN: Final = 20
TURN_EVERY: Final = timedelta(seconds=10)
MARK_EVERY: Final = timedelta(minutes=5)
DROP_EVERY: Final = timedelta(minutes=2)
# What was passed by, since it had not ended or somebody needed it, is looked at again.
ROUND_EVERY: Final = timedelta(hours=12)
KEEP_PAUSES: Final = timedelta(days=7)
LOOK_S: Final = 5.0
MEASURE_EVERY_S: Final = 15.0
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def kept(settings: Settings) -> Kept:
    """As the settings say; 0 is for ever."""

    def age(seconds: float) -> timedelta | None:
        return timedelta(seconds=seconds) if seconds else None

    return Kept(
        feed=age(settings.feed_keep_s),
        contents=age(settings.retention_contents_s),
        messages=age(settings.retention_messages_s),
        events=age(settings.retention_events_s),
    )


class Retention:
    """Duties of the scheduler: each step does a bounded piece of work and says how many seconds to wait."""

    def __init__(self, rows: OldRows, keep: Kept, *, turn_every: timedelta = TURN_EVERY) -> None:
        self._rows = rows
        self._keep = keep
        self._turn_every = turn_every
        self._look_s = min(LOOK_S, turn_every.total_seconds())
        self._message = FIRST_ID
        self._round_ends: datetime | None = None
        self._event = LONG_AGO

    async def mark_feed(self) -> float:
        """Also while the feed is kept for ever, so that another setting has marks to go by."""
        if await self._rows.take_duty("mark_feed", MARK_EVERY):
            await self._rows.mark_feed()
        return LOOK_S

    async def drop_feed(self) -> float:
        """Days of the feed that are old and that Kafka has, and such rows that lie in no day."""
        if self._keep.feed is None or not await self._rows.take_duty("drop_feed", DROP_EVERY):
            return LOOK_S
        while (done := await self._rows.drop_feed_partition(self._keep.feed)) is Drop.DROPPED:
            metrics.SCHEDULER_FEED_DROPS.labels(outcome=done.value).inc()
            log.info("a day of the feed was dropped", extra={"action": "feed.dropped"})
        if done is not Drop.NONE:
            metrics.SCHEDULER_FEED_DROPS.labels(outcome=done.value).inc()
        for _ in range(BATCHES_A_TURN):
            removed = await self._rows.purge_feed_default(self._keep.feed, limit=BATCH)
            metrics.SCHEDULER_PURGED.labels(table="outbox_feed_default").inc(removed)
            if removed < BATCH:
                break
        return LOOK_S

    async def purge_contents(self) -> float:
        """Contents of messages that have ended."""
        if not await self._rows.take_duty("purge_contents", self._turn_every):
            return self._look_s
        for age in self._keep.contents_ages:
            name = f"purge_contents after {age.total_seconds():g} s"
            await self._rows.make_duty(name)
            for _ in range(BATCHES_A_TURN):
                done = await self._rows.purge_contents(name, age=age, limit=BATCH)
                metrics.SCHEDULER_PURGED.labels(table="contents").inc(done.removed)
                if done.seen < BATCH:
                    break
        return self._look_s

    async def purge_messages(self) -> float:
        """Messages that have ended, with their attempts, outcomes and events."""
        age = self._keep.messages
        if age is None or not await self._rows.take_duty("purge_messages", self._turn_every):
            return self._look_s
        self._begin_round(datetime.now(UTC))
        for _ in range(BATCHES_A_TURN):
            done = await self._rows.purge_messages(
                after=self._message, age=age, quiet=self._keep.quiet, limit=BATCH
            )
            self._message = done.last or self._message
            for table, rows in done.removed.items():
                metrics.SCHEDULER_PURGED.labels(table=table).inc(rows)
            if done.seen < BATCH:
                break
        return self._look_s

    def _begin_round(self, now: datetime) -> None:
        if self._round_ends is None or now >= self._round_ends:
            self._message, self._round_ends = FIRST_ID, now + ROUND_EVERY

    async def purge_events(self) -> float:
        """Events of no message of ours, and pauses that are over."""
        if not await self._rows.take_duty("purge_events", self._turn_every):
            return self._look_s
        await self._rows.forget_pauses(KEEP_PAUSES)
        if self._keep.events is not None:
            last, removed = await self._rows.purge_unmatched_events(
                after=self._event, older_than=self._keep.events, limit=BATCH
            )
            self._event = last or LONG_AGO
            metrics.SCHEDULER_PURGED.labels(table="email_event").inc(removed)
        return self._look_s

    async def measure(self) -> float:
        """Sets the gauges."""
        found = await self._rows.upkeep(feed_kept=self._keep.feed or timedelta(0))
        metrics.SCHEDULER_FEED_BEHIND.set(0.0 if self._keep.feed is None else found.feed_behind)
        metrics.SCHEDULER_OLDEST_TRANSACTION.set(found.oldest_transaction)
        metrics.SCHEDULER_XMIN_BEHIND.set(found.xmin_behind)
        metrics.SCHEDULER_OLDEST_MESSAGE.set(found.oldest_message)
        return MEASURE_EVERY_S
