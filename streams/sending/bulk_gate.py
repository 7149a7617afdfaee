"""When bulk calls may be made, and which messages go out in calls of their own."""

import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from streams.domain.backoff import throttle_delay_s

log = logging.getLogger(__name__)

# What AWS does not let these credentials do is asked for again so late.
DENIED_S: Final = 300.0
# Messages of refused calls that are remembered.
_KEPT: Final = 20_000


class BulkGate:
    """Closed for a while after a bulk call that was throttled, refused or not answered. Meanwhile all go out one by one.

    So a throttle on bulk calls slows nothing but them: what the account's rate is, calls of single messages show.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._closed_until = float("-inf")
        self._in_a_row = 0
        self._alone: OrderedDict[UUID, None] = OrderedDict()

    @property
    def is_open(self) -> bool:
        return self._clock() >= self._closed_until

    def passed(self) -> None:
        """A bulk call got through as it should."""
        if self.is_open:
            self._in_a_row = 0

    def close(self, why: str, *, at_least_s: float = 0.0) -> float:
        """Backs off, longer each time in a row; calls that fail together count once. Seconds until it opens again."""
        now = self._clock()
        if self.is_open:
            self._in_a_row += 1
            pause = throttle_delay_s(self._in_a_row, random.random())  # noqa: S311 jitter is no secret
            self._closed_until = now + pause
            log.warning(
                "bulk calls are not made for a while, messages go out one by one",
                extra={"action": "sender.bulk_closed", "why": why},
            )
        self._closed_until = max(self._closed_until, now + at_least_s)
        return self._closed_until - now

    def leave_alone(self, ids: Iterable[UUID]) -> None:
        """The call that these messages were in was refused as a whole: each has to show by itself what is wrong."""
        for id_ in ids:
            self._alone[id_] = None
            self._alone.move_to_end(id_)
        while len(self._alone) > _KEPT:
            self._alone.popitem(last=False)

    def admits(self, id_: UUID) -> bool:
        """Whether the message may be in a bulk call now."""
        return self.is_open and id_ not in self._alone
