"""PostgreSQL -> PostgreSQL: wakes what is due, turns lost calls into ambiguous, settles or escalates them, keeps heartbeat and rate.

Every replica runs every duty; statements that skip locked rows, or a row of scheduler_duty, keep them apart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from streams.domain.heartbeats import heartbeat_keys
from streams.domain.schedule import sweep_ages
from streams.domain.topics import Lane
from streams.ports.scheduler import AccountReader, Schedule
from streams.ports.upkeep import OldRows
from streams.provider_list import ProviderList
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_duties
from streams.runtime.settings import Settings
from streams.scheduling.account_poll import AccountPoll
from streams.scheduling.oldest_pending import OldestPendingSearch
from streams.scheduling.retention import Retention, kept
from streams.scheduling.unknown_outcomes import (
    UnknownOutcomes,
    UnknownOutcomesSettings,
    count_settled,
)

log = logging.getLogger(__name__)

STAGE: Final = "scheduler"
BATCH: Final = 1000
HEARTBEAT_EVERY: Final = timedelta(seconds=1)
PARTITIONS_EVERY: Final = timedelta(seconds=20)
DAYS_AHEAD: Final = 3
MEASURE_EVERY_S: Final = 5.0
# Longer pauses would look like a duty that is stuck.
LONGEST_WAIT_S: Final = 20.0


class Scheduler:
    """The stage. Owns its store, the account reader and the duty on the provider's list: starts and stops them."""

    name: Final = STAGE

    def __init__(
        self,
        *,
        schedule: Schedule,
        account: AccountReader,
        settings: Settings,
        provider_list: ProviderList | None = None,
        old_rows: OldRows | None = None,
    ) -> None:
        self.health = Health(stage=STAGE)
        self._schedule = schedule
        self._account = account
        self._provider_list = provider_list
        self._settings = settings
        self._interval_s = settings.scheduler_interval_s
        self._heartbeats = heartbeat_keys(settings.partitions)
        self._poll = AccountPoll(schedule, account, factor=settings.rate_safety_factor)
        self._search = {lane: OldestPendingSearch(schedule, lane) for lane in Lane}
        self.unknown = UnknownOutcomes(schedule, UnknownOutcomesSettings.of(settings))
        self.retention = None if old_rows is None else Retention(old_rows, kept(settings))
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._running = False

    async def start(self) -> None:
        """Misconfigured without a region, Unavailable without PostgreSQL."""
        self._stopping.clear()
        log.info(
            "the sending account is chosen",
            extra={"action": "account.chosen", "region": self._account.region},
        )
        await self._schedule.start()
        if self._provider_list is not None:
            await self._provider_list.start()

    @property
    def duties(self) -> Mapping[str, Callable[[], Awaitable[float]]]:
        """Each duty's step: does a bounded piece of work and says how many seconds to wait."""
        more: dict[str, Callable[[], Awaitable[float]]] = {}
        if self._provider_list is not None:
            more = {
                "provider_list": self._provider_list.work_off,
                "measure_provider_list": self._provider_list.measure,
            }
        if self.retention is not None:
            more |= {
                "mark_feed": self.retention.mark_feed,
                "drop_feed": self.retention.drop_feed,
                "purge_contents": self.retention.purge_contents,
                "purge_messages": self.retention.purge_messages,
                "purge_events": self.retention.purge_events,
                "measure_upkeep": self.retention.measure,
            }
        return more | {
            "take_due": self.take_due,
            "expire_leases": self.unknown.expire_leases,
            "settle_ambiguous": self.unknown.settle_ambiguous,
            "hold_ambiguous": self.unknown.hold_ambiguous,
            "resend_ambiguous": self.unknown.resend_ambiguous,
            "forget_watches": self.unknown.forget_watches,
            "sweep_pending": self.sweep_pending,
            "heartbeat": self.heartbeat,
            "expire_suppressions": self.expire_suppressions,
            "make_feed_partitions": self.make_feed_partitions,
            "read_account": self._poll.read_account,
            "measure": self.measure,
        }

    async def run(self) -> None:
        """Runs every duty until stop()."""
        self._running = True
        try:
            await run_duties(self.duties, health=self.health, stopping=self._stopping)
        finally:
            self._running = False
            self._stopped.set()

    async def stop(self) -> None:
        """Finishes the statements under way."""
        self._stopping.set()
        if self._running:
            await self._stopped.wait()
        await self._account.stop()
        if self._provider_list is not None:
            await self._provider_list.stop()
        await self._schedule.stop()

    async def take_due(self) -> float:
        """email_due -> feed."""
        done = await self._schedule.take_due(BATCH)
        metrics.SCHEDULER_POINTERS.labels(why="due").inc(done.pointers)
        metrics.SCHEDULER_EXPIRED_ROWS.inc(done.expired)
        count_settled(done.settled)
        return 0.0 if done.taken == BATCH else self._interval_s

    async def sweep_pending(self) -> float:
        """Wakes rows that have been pending for long and wait nowhere: heals a lost topic."""
        full = False
        for age in sweep_ages(timedelta(seconds=self._settings.scheduler_sweep_age_s)):
            name = f"sweep_pending after {age.total_seconds():g} s"
            await self._schedule.make_duty(name)
            swept = await self._schedule.sweep_pending(name, age=age, limit=BATCH)
            metrics.SCHEDULER_POINTERS.labels(why="sweep").inc(swept.pointers)
            full = full or swept.seen == BATCH
            if swept.pointers:
                log.warning(
                    "rows were pending for long and got new pointers",
                    extra={"action": "pending.swept", "rows": swept.pointers, "after": str(age)},
                )
        return self._interval_s if full else self._slowly(self._settings.scheduler_sweep_age_s)

    async def heartbeat(self) -> float:
        """One record a partition of the suppressions, every second, by one replica."""
        every_s = HEARTBEAT_EVERY.total_seconds()
        if not await self._schedule.beat(self._heartbeats, every=HEARTBEAT_EVERY):
            return every_s / 5
        metrics.SCHEDULER_HEARTBEATS.inc()
        return every_s

    async def expire_suppressions(self) -> float:
        """Removes suppressions whose time is over."""
        removed = await self._schedule.expire_suppressions(BATCH)
        metrics.SCHEDULER_EXPIRED_SUPPRESSIONS.inc(removed)
        return 0.0 if removed == BATCH else max(self._interval_s, 1.0)

    async def make_feed_partitions(self) -> float:
        """Partitions of the days to come; where they are there already this costs nothing."""
        if not await self._schedule.take_duty("make_feed_partitions", PARTITIONS_EVERY):
            return LONGEST_WAIT_S / 4
        made = await self._schedule.make_feed_partitions(DAYS_AHEAD)
        if made is None:
            metrics.SCHEDULER_PARTITIONS.labels(outcome="busy").inc()
        else:
            metrics.SCHEDULER_PARTITIONS.labels(outcome="made").inc(made)
        return LONGEST_WAIT_S / 4

    async def measure(self) -> float:
        """Sets the gauges."""
        found = await self._schedule.backlog(heartbeats_every=HEARTBEAT_EVERY)
        metrics.SCHEDULER_DUE.set(found.due)
        metrics.SCHEDULER_LEASES.set(found.leases)
        metrics.SCHEDULER_AMBIGUOUS.set(found.ambiguous)
        metrics.SCHEDULER_UNDECIDED.set(found.held)
        metrics.SCHEDULER_DEAD_LETTERS.set(found.dead_letters)
        metrics.SCHEDULER_DUPLICATES.labels(kind="possible").set(found.possible_duplicates)
        metrics.SCHEDULER_DUPLICATES.labels(kind="proven").set(found.proven_duplicates)
        if found.heartbeat_age is not None:
            metrics.SCHEDULER_HEARTBEAT_AGE.set(found.heartbeat_age)
        for lane, search in self._search.items():
            age = await search.age(datetime.now(UTC))
            if age is not None:
                metrics.SCHEDULER_OLDEST_PENDING.labels(lane=lane.value).set(age)
        return MEASURE_EVERY_S

    def _slowly(self, bound_s: float) -> float:
        """How often something is looked at that happens after bound_s."""
        return min(LONGEST_WAIT_S, max(self._interval_s, bound_s / 20))
