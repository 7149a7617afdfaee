"""Rate and standing of the sending account, as SES tells them."""

import logging
from datetime import timedelta
from typing import Final

from streams.domain.errors import Unavailable
from streams.domain.sending_account import SendingAccount, reason_to_stop, usable_rate
from streams.ports.scheduler import AccountReader, Schedule
from streams.runtime import metrics

log = logging.getLogger(__name__)


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
