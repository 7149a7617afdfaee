"""PostgreSQL -> PostgreSQL: wakes what is due, turns lost calls into ambiguous, settles or escalates them, keeps heartbeat and rate.

Every replica runs every duty; statements that skip locked rows, or a row of scheduler_duty, keep them apart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from streams.domain.errors import Unavailable
from streams.domain.facts import Settled
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.schedule import FIRST_ID, first_id_of, sweep_ages
from streams.domain.sending_account import SendingAccount, reason_to_stop, usable_rate
from streams.domain.topics import Lane
from streams.ports.scheduler import AccountReader, Schedule
from streams.provider_list import ProviderList
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_duties
from streams.runtime.settings import Settings

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
        self._unsettled_after = FIRST_ID
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
        return more | {
            "take_due": self.take_due,
            "expire_leases": self.expire_leases,
            "settle_ambiguous": self.settle_ambiguous,
            "hold_ambiguous": self.hold_ambiguous,
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

    async def expire_leases(self) -> float:
        """sending -> ambiguous, or submitted where there is evidence."""
        done = await self._schedule.expire_leases(BATCH)
        metrics.SCHEDULER_EXPIRED_LEASES.inc(done.leases)
        count_settled(done.settled)
        if done.leases:
            log.warning(
                "leases ran out, the outcome of these calls is unknown",
                extra={"action": "lease.expired", "leases": done.leases},
            )
        return 0.0 if done.leases == BATCH else self._interval_s

    async def settle_ambiguous(self) -> float:
        """Looks for evidence, one page of the unsettled attempts a step."""
        page = await self._schedule.unsettled(after=self._unsettled_after, limit=BATCH)
        if page.outbox_ids:
            count_settled(await self._schedule.settle(page.outbox_ids))
        self._unsettled_after = page.last or FIRST_ID
        return self._interval_s

    async def hold_ambiguous(self) -> float:
        """ambiguous -> failed (held), for a person."""
        after = timedelta(seconds=self._settings.scheduler_hold_s)
        held = await self._schedule.hold_ambiguous(after=after, limit=BATCH)
        metrics.SCHEDULER_HELD.inc(held)
        if held:
            log.error(
                "no event told in time whether SES took these messages, a person has to decide",
                extra={"action": "ambiguous.held", "rows": held},
            )
        return 0.0 if held == BATCH else self._slowly(self._settings.scheduler_hold_s)

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


class OldestPendingSearch:
    """Walks the ids forward, past what is done: an id is passed once, so that this is cheap without an index on the state."""

    # Transactions commit out of the order of their ids: the walk stays behind the newest.
    _behind: Final = timedelta(seconds=30)
    _first_look_back: Final = timedelta(days=1)
    _pages: Final = 5
    _page: Final = 5000

    def __init__(self, schedule: Schedule, lane: Lane) -> None:
        self._schedule = schedule
        self._lane = lane
        self._start: UUID | None = None

    async def age(self, now: datetime) -> float | None:
        """Seconds since the oldest pending row was due, 0 without one; None while the walk is not at its end yet."""
        at = self._start or first_id_of(now - self._first_look_back)
        newest_passed = first_id_of(now - self._behind)
        for _ in range(self._pages):
            found = await self._schedule.oldest_pending(self._lane, start=at, limit=self._page)
            at_end = found is None or (found.age is None and found.id == at)
            if found is not None:
                at = found.id
                self._start = min(at, newest_passed)
            if at_end:
                return 0.0
            if found is not None and found.age is not None:
                return found.age
        return None


class AccountPoll:
    """Rate and standing of the sending account, once a minute by one replica of all."""

    who: Final = "account poll"
    _every: Final = timedelta(seconds=60)
    _pause: Final = timedelta(seconds=120)
    _look_s: Final = 5.0

    def __init__(self, schedule: Schedule, account: AccountReader, *, factor: float) -> None:
        self._schedule = schedule
        self._account = account
        self._factor = factor

    async def read_account(self) -> float:
        """GetAccount -> send_rate and pause. What cannot be read, or is nonsense, changes nothing."""
        if not await self._schedule.take_duty("read_account", self._every):
            return self._look_s
        try:
            account = await self._account.read()
        except Unavailable as error:
            metrics.SCHEDULER_ACCOUNT_READS.labels(outcome="unreachable").inc()
            log.warning(
                "SES does not tell the sending rate, the last one stays",
                extra={"action": "account.unreachable", "error": str(error)},
            )
            return self._look_s
        await self._take_rate(account)
        await self._take_standing(account)
        return self._look_s

    async def _take_rate(self, account: SendingAccount) -> None:
        rate = usable_rate(account, factor=self._factor)
        if rate is None:
            metrics.SCHEDULER_ACCOUNT_READS.labels(outcome="nonsense").inc()
            log.error(
                "SES tells a sending rate that makes no sense, the last one stays",
                extra={"action": "account.nonsense", "max_send_rate": account.max_send_rate},
            )
            return
        metrics.SCHEDULER_ACCOUNT_READS.labels(outcome="read").inc()
        metrics.SCHEDULER_ACCOUNT_RATE.set(rate)
        await self._schedule.set_rate(self._account.region, rate)

    async def _take_standing(self, account: SendingAccount) -> None:
        # A value of its own: pauses of persons and senders have others, and are left alone.
        value = f"{self._account.region} {self.who}"
        reason = reason_to_stop(account)
        metrics.SCHEDULER_ACCOUNT_STOPPED.set(0 if reason is None else 1)
        if reason is None:
            if await self._schedule.resume_account(value, who=self.who):
                log.info("the account may send again", extra={"action": "account.resumed"})
            return
        if await self._schedule.pause_account(
            value, reason=reason, who=self.who, lasting=self._pause
        ):
            log.error(
                "the account may not send, everything is paused",
                extra={"action": "account.stopped", "reason": reason},
            )


def count_settled(settled: Settled) -> None:
    """Counts what evidence moved."""
    metrics.DUPLICATES.labels(stage=STAGE).inc(settled.duplicates)
    for origin, rows in settled.by_origin().items():
        metrics.SETTLED.labels(stage=STAGE, origin=origin).inc(rows)
