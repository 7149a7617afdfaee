"""Suppressions that a producer was given up with: their records may still be appended, behind newer ones of their recipients.

So their recipients are put into the feed once more when nothing of that producer can come any more.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from streams.domain.address_lists import is_recipient_key
from streams.ports.relay_polling import Announcer
from streams.runtime import metrics

log = logging.getLogger(__name__)

# Longer than a producer's request may take.
WAIT_S: Final = 30.0
PAGE: Final = 500
MOST: Final = 100_000


class LateSuppressions:
    """In memory: if the relay itself dies meanwhile, senders that own the partitions see what comes late."""

    def __init__(self, store: Announcer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._keys: dict[str, float] = {}

    def add(self, keys: Iterable[bytes]) -> None:
        """Recipients of records that were on their way when their producer was given up."""
        due = self._clock() + WAIT_S
        for key in keys:
            text = key.decode("ascii", "replace")
            if is_recipient_key(text) and (text in self._keys or len(self._keys) < MOST):
                self._keys[text] = due

    async def announce(self) -> None:
        """Puts those that are due into the feed again, a page at a time. Unavailable: they stay due."""
        now = self._clock()
        due = [key for key, at in self._keys.items() if at <= now][:PAGE]
        if not due:
            return
        await self._store.announce(due)
        for key in due:
            del self._keys[key]
        metrics.RELAY_ANNOUNCED.inc(len(due))
        log.info(
            "suppressions of a producer that was given up are put into the feed again",
            extra={"action": "relay.suppressions_announced", "recipients": len(due)},
        )
