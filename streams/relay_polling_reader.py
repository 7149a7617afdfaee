"""Reading the feed page by page from its beginning, and removing what Kafka has: from an opening to its first failure."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from streams.domain.acknowledgement import AcknowledgedPrefix
from streams.domain.polling import Frontier, Round, RowName, Window, unread
from streams.ports.relay_polling import Page, PollingStore, Share

_REMOVED_AT_ONCE: Final = 5000
# A look at everything takes at most this share of the time, and comes seldom in any case: it only heals.
_BEHIND_S: Final = 5.0
_BEHIND_SHARE: Final = 20


class Reader:
    """A row is read if it is in the feed and not in flight; the frontier only says where to look first."""

    def __init__(
        self, store: PollingStore, share: Share, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.share = share
        self.prefix = AcknowledgedPrefix()
        self.known: set[bytes | None] = set()
        self.looked_at = -1e9
        self._store = store
        self._clock = clock
        self._frontier = Frontier()
        self._ordinal = 0
        self._pages: deque[tuple[int, Sequence[RowName]]] = deque()
        self._in_flight: set[RowName] = set()
        # Removed while a page was on its way that may still hold them.
        self._removed: set[RowName] = set()
        self._asking = False
        self._removing = asyncio.Lock()
        self._window = Window()
        self._round = Round()
        self._behind_at = clock() + _BEHIND_S

    @property
    def is_behind(self) -> bool:
        """Whether there may be something to read."""
        return self._frontier.is_behind

    async def look(self) -> None:
        """Learns what there is: first the end, then who may still write before it, and pages are read after both."""
        self.looked_at = self._clock()
        end = await self._store.end()
        self._frontier.looked(end, await self._store.writers())

    async def next_page(self) -> Page:
        """The next rows, without those that are in flight."""
        frontier, began = self._frontier, self._clock()
        after = frontier.cursor
        end = self._window.end(after, frontier.end)
        self._asking = True
        page = await self._store.page(self.share, ordinal=self._ordinal + 1, after=after, end=end)
        self._asking = False
        if page.rows:
            self._window = Window()
        else:
            self._window.took(self._clock() - began)
        frontier.read(after, end if page.complete else page.names[-1][0])
        new = [number for number, name in enumerate(page.names) if name not in self._in_flight]
        self._in_flight -= self._removed
        self._removed.clear()
        if len(new) == len(page.names):
            return page
        return replace(
            page,
            rows=[page.rows[number] for number in new],
            names=[page.names[number] for number in new],
        )

    def accepted(self, page: Page) -> None:
        """All its rows are in batches or set aside: they are removed once everything up to them is acknowledged."""
        self._ordinal = page.transaction.ordinal
        self._in_flight.update(page.names)
        self._pages.append((page.transaction.ordinal, page.names))
        self.prefix.committed([page.transaction])

    async def remove(self) -> list[RowName]:
        """Removes what is acknowledged from the feed, as one transaction; what was removed. Unavailable: perhaps removed."""
        async with self._removing:
            done = self.prefix.confirmable()
            names: list[RowName] = []
            while self._pages and self._pages[0][0] <= done and len(names) < _REMOVED_AT_ONCE:
                names += self._pages.popleft()[1]
            if names:
                await self._store.delete(names)
                if self._asking:
                    self._removed.update(names)
                else:
                    self._in_flight.difference_update(names)
            return names

    async def look_behind(self) -> None:
        """Finds what the frontier does not know of, such as a row whose sequence number was written by hand."""
        began = self._clock()
        if began < self._behind_at:
            return
        known = set(self._in_flight)
        after, end = self._round.next(self._frontier.cursor)
        found = await self._store.behind(
            self.share, after=after, end=end, most=len(known) + _REMOVED_AT_ONCE
        )
        if (number := unread(found, known | self._in_flight)) is not None:
            self._frontier.missed(number)
        now = self._clock()
        self._round.looked(end)
        self._round.window.took(now - began)
        self._behind_at = now + max(_BEHIND_S, _BEHIND_SHARE * (now - began))
