"""The relay's beginning: becoming the one reader of the slot, judging it, and making a lost one anew without a gap."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from streams.domain.acknowledgement import NOWHERE, Lsn, Transaction
from streams.domain.errors import Unavailable
from streams.domain.feed_rows import FeedRow
from streams.domain.slots import Checkpoint, Cluster, Held, Lost, NewSlot, judge
from streams.ports.relay import RelayStore, ReplicationSource
from streams.runtime import metrics
from streams.runtime.lifecycle import Health

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 3.0
_WATCH_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The slot is ours to open: it stands at confirmed, and what is before start was acknowledged. lost says why it is worthless,
    if it is; exists: it has to be dropped first."""

    cluster: Cluster
    confirmed: Lsn
    start: Lsn
    lost: str | None
    exists: bool


class SlotOpening:
    """One claim after the other, on the relay's own connection; and an eye on the slot."""

    def __init__(self, *, source: ReplicationSource, store: RelayStore, health: Health) -> None:
        self._source = source
        self._store = store
        self._health = health
        self._watched_at = -_WATCH_S

    async def claim(self) -> Claim | Held:
        """Connects, keeps other relays out, and judges the slot. Held: somebody else is at work."""
        source, store = self._source, self._store
        await source.connect()
        if not await source.try_lock():
            return Held(why="another relay streams from the slot")
        await store.check_setup()
        cluster = await source.identify()
        slot, checkpoint = await store.slot(), await store.checkpoint()
        if checkpoint is not None and checkpoint.cluster != cluster:
            log.warning(
                "the cluster or its timeline is another one than before",
                extra={"action": "relay.cluster_changed", "timeline": cluster.timeline},
            )
        verdict = judge(slot, checkpoint, cluster)
        if isinstance(verdict, Held):
            return verdict
        if isinstance(verdict, Lost):
            return Claim(
                cluster=cluster,
                confirmed=NOWHERE,
                start=NOWHERE,
                lost=verdict.why,
                exists=slot is not None,
            )
        if checkpoint is None:
            await store.store_checkpoint(Checkpoint(lsn=verdict.start, cluster=cluster))
        return Claim(
            cluster=cluster,
            confirmed=verdict.confirmed,
            start=verdict.start,
            lost=None,
            exists=True,
        )

    async def begin(self, claim: Claim) -> Held | None:
        """Starts the stream; Held if somebody who is no relay reads the slot."""
        if not await self._source.start(claim.start):
            return Held(why="the slot is read by somebody who is no relay")
        # From here on nobody else can move the slot: it must still stand where it was judged.
        slot = await self._store.slot()
        if slot is None or (claim.lost is None and slot.confirmed != claim.confirmed):
            raise Unavailable("the slot was moved while it was being opened")
        # Both kinds of relay say that they are at work before they look for the other.
        await self._store.check_setup()
        return None

    async def watch(self) -> None:
        """Every few seconds: Misconfigured if the publication was taken away; how much WAL the slot holds."""
        now = time.monotonic()
        if now - self._watched_at < _WATCH_S:
            return
        self._watched_at = now
        await self._store.check_setup()
        slot = await self._store.slot()
        metrics.RELAY_SLOT_LAG.set(0 if slot is None else slot.lag_bytes)
        safe = None if slot is None else slot.safe_wal_size
        metrics.RELAY_SLOT_SAFE.set(math.inf if safe is None else safe)
        metrics.RELAY_SLOT_RETAINED.set(0 if slot is None else slot.retained_bytes)
        metrics.RELAY_SLOT_SHARE.set(0 if slot is None else slot.kept_share)

    @asynccontextmanager
    async def recovered(
        self, claim: Claim, stopping: asyncio.Event
    ) -> AsyncIterator[tuple[Transaction, AsyncIterator[list[FeedRow]]]]:
        """Makes the slot anew, and yields every row that was there before it, in pages, and their one transaction.

        Until all of them are acknowledged the stored position is 0, so that a crash in between begins this again.
        """
        log.warning(
            "the replication slot is lost: it is made anew and the whole feed is sent again, consumers will see duplicates",
            extra={"action": "relay.slot_rebuilt", "reason": claim.lost},
        )
        metrics.RELAY_REBUILDS.inc()
        await self._store.store_checkpoint(Checkpoint(lsn=NOWHERE, cluster=claim.cluster))
        if claim.exists:
            await self._source.drop_slot()
        made = await self._new_slot(stopping)
        everything = Transaction(0, time.time(), made.start)
        async with self._store.snapshot(made.snapshot, everything) as pages:
            yield everything, pages

    async def _new_slot(self, stopping: asyncio.Event) -> NewSlot:
        making = asyncio.ensure_future(self._source.create_slot())
        try:
            while not (await asyncio.wait([making], timeout=_PATIENCE_S))[0]:
                self._health.beat("stream")
                log.warning(
                    "the new slot waits for transactions that write",
                    extra={
                        "action": "relay.slot_waits",
                        "transactions": await self._store.writing_transactions(),
                    },
                )
                if stopping.is_set():
                    raise Unavailable("asked to stop while the new slot waited for transactions")
            return making.result()
        finally:
            making.cancel()
