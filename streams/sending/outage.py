"""Calls that never left this machine: how long to wait, and whether they are charged to their messages."""

import random
import time
from uuid import UUID

from streams.domain.backoff import throttle_delay_s, unreachable_delay_s


class Outage:
    """Faults before the first byte, since the last call that reached SES.

    One message alone is charged for each, so that it ends. Where other messages fail likewise it is not theirs, and
    none is charged: only their expires_at ends them.
    """

    def __init__(self) -> None:
        self._first: UUID | None = None
        self._shared = False
        self._in_a_row = 0
        self._until = 0.0

    @property
    def backing_off_s(self) -> float:
        """So long nothing new should be asked for."""
        return max(self._until - time.monotonic(), 0.0)

    def delay_s(self, attempt: int) -> float:
        """Until a message is to be tried again whose attempt of this number (from 1) failed."""
        return unreachable_delay_s(max(self._in_a_row, attempt), random.random())  # noqa: S311 jitter is no secret

    def failed(self, message: UUID) -> bool:
        """A call of this message never left; whether it is charged. Calls that fail together count once."""
        self._shared = self._shared or (self._first or message) != message
        self._first = self._first or message
        if self.backing_off_s == 0.0:
            self._in_a_row += 1
            pause = throttle_delay_s(self._in_a_row, random.random())  # noqa: S311 jitter is no secret
            self._until = time.monotonic() + pause
        return not self._shared

    def ended(self) -> None:
        """SES was reached."""
        self._first, self._shared, self._in_a_row, self._until = None, False, 0, 0.0
