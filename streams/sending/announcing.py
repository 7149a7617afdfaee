"""Recipients whose last record in the suppression topic is an older one are put into the feed again."""

import logging
import time
from collections.abc import Callable
from typing import Final

from streams.domain.addresses import RecipientKey
from streams.ports.sender import SuppressionAnnouncer, SuppressionGuard
from streams.runtime import metrics

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
# A page of records that the relay repeats ends with the newest ones: what it overtakes for a moment is left alone.
SETTLE_S: Final = 5.0
# What was announced comes back through the relay; if not, it is announced again.
AGAIN_S: Final = 60.0
MOST: Final = 100


class Announcing:
    """At most so many recipients a second, each once a minute at most."""

    def __init__(
        self,
        guard: SuppressionGuard,
        announcer: SuppressionAnnouncer | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard = guard
        self._announcer = announcer
        self._clock = clock
        self._due: dict[RecipientKey, float] = {}

    async def step(self) -> float:
        overtaken = self._guard.overtaken()
        now = self._clock()
        self._due = {key: self._due.get(key, now + SETTLE_S) for key in overtaken}
        keys = [key for key, due in self._due.items() if due <= now][:MOST]
        if not keys or self._announcer is None:
            return LOOK_EVERY_S
        await self._announcer.announce(keys, behind=max(overtaken[key] for key in keys))
        self._due |= dict.fromkeys(keys, now + AGAIN_S)
        metrics.SENDER_SUPPRESSIONS_ANNOUNCED.inc(len(keys))
        log.warning(
            "recipients whose last suppression record is an older one are announced again",
            extra={"action": "suppressions.announced_again", "recipients": len(keys)},
        )
        return LOOK_EVERY_S
