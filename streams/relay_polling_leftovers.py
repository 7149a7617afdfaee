"""What a relay in wal mode had sent and left in the feed: polling removes it without sending it again."""

import logging
import time
from typing import Final

from streams.domain.polling import Acknowledged, Window
from streams.ports.relay_polling import PollingStore
from streams.runtime import metrics

log = logging.getLogger(__name__)

_AT_ONCE: Final = 5000


class Leftovers:
    """A walk through the feed, a step at a time, by one relay."""

    def __init__(self, store: PollingStore, done: Acknowledged) -> None:
        self._store = store
        self._done = done
        self._after = 0
        self._window = Window()
        self.gone = False

    async def remove_some(self) -> None:
        """One step; gone is true after the last."""
        last, began = await self._store.end(), time.monotonic()
        end = self._window.end(self._after, last)
        names = await self._store.acknowledged(
            self._done, after=self._after, end=end, most=_AT_ONCE
        )
        if names:
            await self._store.delete(names)
            metrics.RELAY_REMOVED.inc(len(names))
            self._window = Window()
        else:
            self._window.took(time.monotonic() - began)
        self._after = names[-1][0] if len(names) == _AT_ONCE else end
        if self._after >= last:
            await self._store.forget_acknowledged()
            self.gone = True
            log.info(
                "what a relay in wal mode had sent is removed from the feed",
                extra={"action": "relay.leftovers_removed"},
            )
