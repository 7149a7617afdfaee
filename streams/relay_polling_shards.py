"""Which shards of the keys this relay reads, by leases on the server's clock, counted on its own."""

import time
from collections.abc import Callable

from streams.domain.errors import Unavailable
from streams.domain.polling import OWN_LEASE_S, surplus, wanted
from streams.ports.relay_polling import PollingStore


class Shards:
    """Of `count` shards those that are held. Nothing may be written once `lapsed`: another relay may have begun."""

    def __init__(
        self, store: PollingStore, *, count: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.count = count
        self.held: list[int] = []
        # Whether shards have to go to other relays, or are free to be taken.
        self.regroup = False
        self._store = store
        self._clock = clock
        self._until = 0.0

    @property
    def lapsed(self) -> bool:
        return self._clock() >= self._until

    def check(self) -> None:
        """Unavailable if they are not ours any more."""
        if self.lapsed:
            raise Unavailable(
                "the lease of the shards has run out before PostgreSQL renewed it: another relay may read them"
            )

    async def claim(self) -> bool:
        """Takes this relay's fair share of what is free; whether it holds any. Called while nothing is read."""
        asked = self._clock()
        self.held, self.regroup = [], False
        renewal = await self._store.renew(self.count)
        if renewal is None:
            await self._store.prepare(self.count)
            return False
        leaving = surplus(renewal, self.count)
        if leaving:
            await self._store.release(leaving)
        more = wanted(renewal, self.count)
        taken = await self._store.claim(self.count, more) if more else []
        self.held = sorted({*renewal.held, *taken} - set(leaving))
        self._until = asked + OWN_LEASE_S
        return bool(self.held)

    async def renew(self) -> None:
        """Unavailable if one of the shards is not ours any more."""
        asked = self._clock()
        renewal = await self._store.renew(self.count)
        if renewal is None or not set(self.held) <= set(renewal.held):
            self._until = 0.0
            self.check()
            return
        self._until = max(self._until, asked + OWN_LEASE_S)
        self.regroup = bool(surplus(renewal, self.count) or wanted(renewal, self.count))

    async def release(self) -> None:
        """Gives everything back; this relay writes nothing any more."""
        held, self.held, self._until = self.held, [], 0.0
        await self._store.release(held)
        await self._store.leave()
