"""The sending limits and switches of the account."""

from collections import deque
from dataclasses import dataclass, field

from streams.simulator.refusals import (
    account_suspended,
    quota_exceeded,
    sending_paused,
    too_many_requests,
)

DAY_S = 24 * 3600.0


@dataclass(slots=True, kw_only=True)
class Account:
    """A bucket of recipients and a rolling count of 24 hours; `now` is a monotonic second."""

    rate: float
    burst_s: float
    daily_quota: float
    sending_enabled: bool = True
    enforcement_status: str = "HEALTHY"
    production_access: bool = True
    suspended: bool = False
    suppressed_reasons: tuple[str, ...] = ("BOUNCE", "COMPLAINT")
    _tokens: float = field(default=0.0, init=False)
    _filled_at: float | None = field(default=None, init=False)
    _sent: deque[list[float]] = field(default_factory=deque, init=False)
    _sent_total: float = field(default=0.0, init=False)

    def admit(self, *, recipients: int, counted: int, now: float) -> None:
        """Take the permits of a call, or raise what SES answers.

        A call passes while one recipient's budget is left and may overdraw it: the calls after
        it then wait until it is repaid. `counted` are the recipients that the daily quota counts.
        """
        self.check_open()
        self._check_quota(counted, now)
        self.check_rate(now)
        self._take(recipients, counted, now)

    def check_open(self) -> None:
        if self.suspended:
            raise account_suspended()
        if not self.sending_enabled or self.enforcement_status == "SHUTDOWN":
            raise sending_paused()

    def check_rate(self, now: float) -> None:
        self._fill(now)
        if self._tokens < 1 - 1e-9:
            raise too_many_requests("Maximum sending rate exceeded.")

    def admit_entry(self, *, recipients: int, counted: int, now: float) -> None:
        """Take the permits of one message of a call whose rate is checked already."""
        self._check_quota(counted, now)
        self._take(recipients, counted, now)

    def _check_quota(self, counted: int, now: float) -> None:
        if self.daily_quota >= 0 and self.sent_last_24_hours(now) + counted > self.daily_quota:
            raise quota_exceeded()

    def _take(self, recipients: int, counted: int, now: float) -> None:
        self._tokens -= recipients
        self._count(counted, now)

    def sent_last_24_hours(self, now: float) -> float:
        while self._sent and self._sent[0][0] <= now - DAY_S:
            self._sent_total -= self._sent.popleft()[1]
        return self._sent_total

    def change_rate(self, *, rate: float, burst_s: float) -> None:
        self.rate, self.burst_s = rate, burst_s
        self._tokens = min(self._tokens, self._capacity)

    @property
    def _capacity(self) -> float:
        return max(1.0, self.rate * self.burst_s)

    def _fill(self, now: float) -> None:
        if self._filled_at is None:
            self._tokens = self._capacity
        else:
            grown = self._tokens + (now - self._filled_at) * self.rate
            self._tokens = min(self._capacity, grown)
        self._filled_at = now

    def _count(self, counted: int, now: float) -> None:
        """One entry a second is exact enough for a day."""
        second = float(int(now))
        if self._sent and self._sent[-1][0] == second:
            self._sent[-1][1] += counted
        else:
            self._sent.append([second, float(counted)])
        self._sent_total += counted


@dataclass(slots=True, kw_only=True)
class CallLimit:
    """The limit that AWS puts on all SES calls but sending; None: no limit."""

    per_second: float | None
    _next: float = field(default=0.0, init=False)

    def admit(self, now: float) -> None:
        if self.per_second is None:
            return
        if now < self._next:
            raise too_many_requests("Rate exceeded")
        self._next = now + 1 / self.per_second
