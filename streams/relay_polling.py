"""The relay where logical decoding is not available: reads the feed itself, a page at a time, and removes what Kafka has.

State decides, never a position: a row is sent as long as it is in the feed, and removed once its record is acknowledged, so that
none is lost whenever it is committed. The rows of one recipient key are read in the order of their sequence by one relay at a time.
"""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.feed_rows import RecordRefused
from streams.ports.relay import RecordSink
from streams.ports.relay_polling import PollingStore, Share
from streams.relay_late import LateSuppressions
from streams.relay_polling_leftovers import Leftovers
from streams.relay_polling_reader import Reader
from streams.relay_polling_rows import Rows
from streams.relay_polling_shards import Shards
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_loop

log = logging.getLogger(__name__)

_STANDBY_S: Final = 0.5
_RENEW_S: Final = 2.0
_REMOVE_S: Final = 0.02
_TICK_S: Final = 0.5
_SETUP_S: Final = 10.0
_SLOW_KAFKA_S: Final = 15.0
# How long records on their way may still arrive when reading is given up.
_LET_GO_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingSettings:
    """interval_s: from one look for new rows to the next."""

    shards: int
    interval_s: float
    drain_s: float


class RelayPolling:
    """The stage. Ready while it reads a shard; a relay without one stands by: alive, not ready."""

    name = "relay"

    def __init__(self, settings: PollingSettings, *, sink: RecordSink, store: PollingStore) -> None:
        self.health = Health(self.name)
        self._settings = settings
        self._sink = sink
        self._store = store
        self._shards = Shards(store, count=settings.shards)
        self._late = LateSuppressions(store)
        self._stopping = asyncio.Event()
        self._rows = Rows(sink, store, health=self.health, stopping=self._stopping)
        self._drained = asyncio.Event()
        self._progress = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()
        self._reader: Reader | None = None
        self._leftovers: Leftovers | None = None
        self._failure: Exception | None = None
        self._acknowledged_at = 0.0
        self._checked_at = 0.0

    # Life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Misconfigured says what is wrong with the database, or that a relay in the other mode is at work."""
        self._stopping.clear()
        self._drained.clear()
        self.health.not_ready("shards", "not reading yet")
        await self._store.start()
        await self._store.check_setup()
        await self._store.prepare(self._settings.shards)

    async def run(self) -> None:
        self._finished.clear()
        duties = {
            "remove": self._remove,
            "lease": self._renew,
            "behind": self._look_behind,
            "tick": self._tick,
        }
        loops = [
            asyncio.create_task(
                run_loop(step, name=name, health=self.health, stopping=self._drained)
            )
            for name, step in duties.items()
        ]
        try:
            await run_loop(self._step, name="stream", health=self.health, stopping=self._stopping)
            if self._reader is not None and not await self._sink.drained(self._settings.drain_s):
                log.warning(
                    "records are in flight at the end of the drain and will be sent again",
                    extra={"action": "relay.not_drained", "rows": self._sink.rows_in_flight},
                )
        finally:
            self._drained.set()
            self._progress.set()
            await asyncio.gather(*loops, return_exceptions=True)
            await self._close_reader()
            await self._release()
            self._finished.set()

    async def stop(self) -> None:
        self._stopping.set()
        await self._finished.wait()
        await self._store.stop()

    async def _step(self) -> float:
        done = False
        try:
            self._raise_failure()
            if self._reader is None and not await self._open():
                done = True
                return _STANDBY_S
            pause = 0.0
            if self._reader is not None:
                pause = await self._pump(self._reader)
            done = True
        except RecordRefused as error:
            self._rows.refused[error.row_id] = error.why
            pause = 0.0
        finally:
            if not done:
                if self._reader is not None:
                    metrics.RELAY_REPLAYS.inc()
                await self._close_reader()
        return pause

    async def _open(self) -> bool:
        """Becomes the one that reads some shards; False while other relays read them all."""
        if not await self._shards.claim():
            self.health.not_ready("shards", "other relays read every shard")
            return False
        try:
            # Both kinds of relay say that they are at work before they look for the other.
            await self._store.check_setup()
            done = await self._store.begin()
            share = Share(shards=self._shards.count, held=self._shards.held, acknowledged=done)
            reader = Reader(self._store, share)
            await self._sink.open(
                reader.prefix, on_progress=self._on_acknowledged, on_failure=self._fail
            )
        except BaseException:
            await self._release()
            raise
        self._reader = reader
        # One of the relays removes them.
        mine = done if 0 in share.held else None
        self._leftovers = None if mine is None else Leftovers(self._store, mine)
        self.health.ready("shards")
        metrics.RELAY_STREAMING.set(1)
        metrics.RELAY_SHARDS.set(len(share.held))
        log.info(
            "reading the feed",
            extra={"action": "relay.polling", "held": share.held, "shards": share.shards},
        )
        return True

    async def _close_reader(self) -> None:
        """Gives up what is in flight, then removes what is acknowledged. Reads nothing any more."""
        reader = self._reader
        metrics.RELAY_STREAMING.set(0)
        metrics.RELAY_SHARDS.set(0)
        if reader is not None:
            self.health.not_ready("shards", "not reading")
            self.health.ready("topic")
            if not self._shards.lapsed:
                await self._sink.drained(_LET_GO_S)
            await self._close_sink()
            await self._remove_last(reader)
        self._reader = self._failure = None

    async def _close_sink(self) -> None:
        self._late.add(await self._sink.close())

    async def _release(self) -> None:
        """Lets other relays begin at once, if PostgreSQL still answers; else when the lease has run out."""
        try:
            async with asyncio.timeout(_LET_GO_S):
                await self._shards.release()
        except (Unavailable, TimeoutError) as error:
            log.warning(
                "the shards could not be given back and are free when their lease has run out",
                extra={"action": "relay.not_released", "error": str(error)},
            )

    # Reading --------------------------------------------------------------------------------------------------------

    async def _pump(self, reader: Reader) -> float:
        """Reads a page, or says how long to rest."""
        self._shards.check()
        if self._shards.regroup:
            await self._close_reader()
            return 0.0
        if not await self._sink.room(_TICK_S):
            return 0.0
        if not reader.is_behind:
            rest = reader.looked_at + self._settings.interval_s - time.monotonic()
            if rest > 0:
                return rest
            await reader.look()
            if not reader.is_behind:
                return self._settings.interval_s
        page = await reader.next_page()
        if page.rows:
            await self._rows.accept(page.rows, reader.known, self._check)
            reader.accepted(page)
            self._progress.set()
        return 0.0

    def _check(self) -> None:
        self._raise_failure()
        self._shards.check()

    # Removing -------------------------------------------------------------------------------------------------------

    async def _remove(self) -> float:
        """Removes what is acknowledged."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._progress.wait(), _TICK_S)
        self._progress.clear()
        if (reader := self._reader) is None:
            return 0.0
        try:
            await self._remove_from(reader)
        except Unavailable as error:
            self._fail(error)
            raise
        return _REMOVE_S

    async def _remove_from(self, reader: Reader) -> None:
        while names := await reader.remove():
            metrics.RELAY_REMOVED.inc(len(names))
            if self._rows.refused:
                for _, row_id, _ in names:
                    self._rows.refused.pop(row_id.encode(), None)

    async def _remove_last(self, reader: Reader) -> None:
        """Removes what is acknowledged, if PostgreSQL still answers: what is not removed is sent again."""
        try:
            async with asyncio.timeout(_LET_GO_S):
                await self._remove_from(reader)
        except (Unavailable, TimeoutError) as error:
            log.warning(
                "the last acknowledged rows could not be removed from the feed and will be sent again",
                extra={"action": "relay.not_removed", "error": str(error)},
            )

    # Beside ---------------------------------------------------------------------------------------------------------

    async def _renew(self) -> float:
        if not self._shards.held:
            return _TICK_S
        try:
            await self._shards.renew()
            await self._check_setup()
        except Misconfigured as error:
            self._fail(error)
        except Unavailable as error:
            if self._shards.lapsed:
                self._fail(error)
            raise
        return _RENEW_S

    async def _check_setup(self) -> None:
        now = time.monotonic()
        if now - self._checked_at > _SETUP_S:
            self._checked_at = now
            await self._store.check_setup()

    async def _look_behind(self) -> float:
        if (reader := self._reader) is None:
            return _TICK_S
        if self._leftovers is not None and not self._leftovers.gone:
            await self._leftovers.remove_some()
            return 0.0
        await reader.look_behind()
        return _TICK_S

    async def _tick(self) -> float:
        """What depends on time alone: the end of the lease, gauges, readiness."""
        reader, now = self._reader, time.monotonic()
        if reader is not None and self._shards.lapsed:
            why = "the lease of the shards has run out before PostgreSQL renewed it"
            self.health.not_ready("shards", why)
            await self._close_sink()
            self._fail(Unavailable(why))
        metrics.RELAY_IN_FLIGHT_ROWS.set(self._sink.rows_in_flight)
        metrics.RELAY_IN_FLIGHT_BYTES.set(self._sink.bytes_in_flight)
        oldest = None if reader is None else reader.prefix.oldest_committed_at()
        metrics.RELAY_OLDEST_AGE.set(0.0 if oldest is None else max(0.0, time.time() - oldest))
        if not self._sink.rows_in_flight:
            self._acknowledged_at = now
        if now - self._acknowledged_at > _SLOW_KAFKA_S:
            self.health.not_ready(
                "kafka",
                f"nothing is acknowledged for {_SLOW_KAFKA_S:g} s or more: see that the brokers are up, that as many are in "
                "sync as min.insync.replicas asks for, and that their disks have room",
            )
        else:
            self.health.ready("kafka")
        await self._late.announce()
        return _TICK_S

    def _on_acknowledged(self) -> None:
        self._acknowledged_at = time.monotonic()
        self._progress.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None and self._reader is not None:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
