"""Calls whose outcome nobody wrote or nobody knows: expired leases, evidence, and what the policies of the rows say."""

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from streams.domain.facts import Settled
from streams.domain.schedule import FIRST_ID, Resending
from streams.ports.scheduler import Schedule
from streams.runtime import metrics
from streams.runtime.settings import Settings

log = logging.getLogger(__name__)

STAGE: Final = "scheduler"
BATCH: Final = 1000
LONGEST_WAIT_S: Final = 20.0
KEEP_WATCHES: Final = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownOutcomesSettings:
    """How often is looked, and when the policies act, in seconds after a call turned ambiguous."""

    interval_s: float
    hold_s: float
    resending: Resending

    @classmethod
    def of(cls, settings: Settings) -> "UnknownOutcomesSettings":
        return cls(
            interval_s=settings.scheduler_interval_s,
            hold_s=settings.scheduler_hold_s,
            resending=Resending(
                after=timedelta(seconds=settings.scheduler_resend_s),
                when_silent_after=timedelta(seconds=settings.scheduler_silent_s),
                most_attempts=settings.sender_max_attempts,
            ),
        )


class UnknownOutcomes:
    """Duties of the scheduler: each step does a bounded piece of work and says how many seconds to wait."""

    def __init__(self, schedule: Schedule, settings: UnknownOutcomesSettings) -> None:
        self._schedule = schedule
        self._settings = settings
        self._unsettled_after = FIRST_ID

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
        return 0.0 if done.leases == BATCH else self._settings.interval_s

    async def settle_ambiguous(self) -> float:
        """Looks for evidence, one page of the unsettled attempts a step."""
        page = await self._schedule.unsettled(after=self._unsettled_after, limit=BATCH)
        if page.outbox_ids:
            count_settled(await self._schedule.settle(page.outbox_ids))
        self._unsettled_after = page.last or FIRST_ID
        return self._settings.interval_s

    async def hold_ambiguous(self) -> float:
        """ambiguous -> failed (held), for a person: what no event and no policy moved in time."""
        after = timedelta(seconds=self._settings.hold_s)
        held = await self._schedule.hold_ambiguous(after=after, limit=BATCH)
        metrics.SCHEDULER_HELD.inc(held)
        if held:
            log.error(
                "no event told in time whether SES took these messages, a person has to decide",
                extra={"action": "ambiguous.held", "rows": held},
            )
        return 0.0 if held == BATCH else self._slowly(self._settings.hold_s)

    async def resend_ambiguous(self) -> float:
        """ambiguous -> pending, where the row's policy says so. Each may be a duplicate."""
        rule = self._settings.resending
        done = await self._schedule.resend_ambiguous(rule, limit=BATCH)
        for policy, rows in done.by_policy().items():
            metrics.SCHEDULER_RESENT.labels(policy=policy).inc(rows)
            if rows:
                log.warning(
                    "messages of unknown outcome are sent again by their policy and may be duplicates",
                    extra={"action": "ambiguous.resent", "policy": policy, "rows": rows},
                )
        bound = min(rule.after, rule.when_silent_after)
        return 0.0 if done.rows == BATCH else self._slowly(bound.total_seconds())

    async def forget_watches(self) -> float:
        """Removes what the intake told longer ago than any silence lasts."""
        await self._schedule.forget_watches(
            max(KEEP_WATCHES, 2 * self._settings.resending.when_silent_after)
        )
        return LONGEST_WAIT_S

    def _slowly(self, bound_s: float) -> float:
        """How often something is looked at that happens after bound_s."""
        return min(LONGEST_WAIT_S, max(self._settings.interval_s, bound_s / 20))


def count_settled(settled: Settled) -> None:
    """Counts what evidence moved, and what it shows too late."""
    metrics.DUPLICATES.labels(stage=STAGE).inc(settled.duplicates)
    metrics.CONTRADICTED.labels(stage=STAGE).inc(settled.contradicted)
    for origin, rows in settled.by_origin().items():
        metrics.SETTLED.labels(stage=STAGE, origin=origin).inc(rows)
