"""The relay: committed rows of outbox_feed become Kafka records, in commit order, at least once, none lost.

Read messages, put their rows into batches, confirm to the slot what Kafka has acknowledged. The slot is the only
position; a failure of any kind drops what is unconfirmed and begins again where the slot stands.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from streams.domain.acknowledgement import NOWHERE, Lsn, Transaction, lsn_text
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.feed_rows import FeedRow, RecordRefused, Refusal, sift
from streams.domain.slots import Held
from streams.ports.relay import RecordSink, RelayStore, ReplicationSource
from streams.relay_late import LateSuppressions
from streams.relay_slot import Claim, SlotOpening
from streams.relay_stream import Stream
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_loop, wait_or_stop

log = logging.getLogger(__name__)

_STANDBY_S: Final = 0.5
_CONFIRM_S: Final = 0.1
_TICK_S: Final = 1.0
_SLOW_KAFKA_S: Final = 15.0
# How long records on their way may still arrive when the stream is given up.
_LET_GO_S: Final = 2.0


class Relay:
    """The stage. Ready while it streams; a second relay of one slot stands by: alive, not ready."""

    name = "relay"

    def __init__(
        self, *, source: ReplicationSource, sink: RecordSink, store: RelayStore, drain_s: float
    ) -> None:
        self.health = Health(self.name)
        self._source = source
        self._sink = sink
        self._store = store
        self._opening = SlotOpening(source=source, store=store, health=self.health)
        self._late = LateSuppressions(store)
        self._drain_s = drain_s
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        self._progress = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()
        self._stream: Stream | None = None
        self._failure: Exception | None = None
        # Rows that Kafka refused, with its reason, until the slot has passed them; where they stand in this stream.
        self._refused: dict[bytes | None, str] = {}
        self._set_aside_in: dict[bytes | None, Transaction] = {}
        self._acknowledged_at = 0.0

    # Life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Misconfigured says what is wrong with the database; the slot and Kafka are waited for by run()."""
        self._stopping.clear()
        self._drained.clear()
        self.health.not_ready("slot", "not streaming yet")
        await self._store.start()
        await self._store.check_setup()

    async def run(self) -> None:
        self._finished.clear()
        duties = [
            asyncio.create_task(
                run_loop(step, name=name, health=self.health, stopping=self._drained)
            )
            for name, step in (("confirm", self._confirm), ("tick", self._tick))
        ]
        try:
            await run_loop(self._step, name="stream", health=self.health, stopping=self._stopping)
            if self._stream is not None and not await self._sink.drained(self._drain_s):
                log.warning(
                    "records are in flight at the end of the drain and will be sent again",
                    extra={"action": "relay.not_drained", "rows": self._sink.rows_in_flight},
                )
        finally:
            self._drained.set()
            self._progress.set()
            await asyncio.gather(*duties, return_exceptions=True)
            await self._close_stream()
            self._finished.set()

    async def stop(self) -> None:
        self._stopping.set()
        self._source.wake()
        await self._finished.wait()
        await self._store.stop()

    async def _step(self) -> float:
        done = False
        try:
            self._raise_failure()
            if self._stream is None and not await self._open():
                done = True
                return _STANDBY_S
            if self._stream is not None:
                await self._pump(self._stream)
            done = True
        except RecordRefused as error:
            self._refused[error.row_id] = error.why
        finally:
            if not done:
                if self._stream is not None:
                    metrics.RELAY_REPLAYS.inc()
                await self._close_stream()
        return 0.0

    async def _open(self) -> bool:
        """Becomes the one that streams; False while somebody else is, or if asked to stop meanwhile."""
        claim = await self._opening.claim()
        if isinstance(claim, Held):
            self.health.not_ready("slot", claim.why)
            return False
        stream = self._stream = Stream(claim, source=self._source, store=self._store)
        await self._sink.open(
            stream.prefix, on_progress=self._on_acknowledged, on_failure=self._fail
        )
        if claim.lost is not None:
            self.health.not_ready("slot", f"sending the whole feed again: {claim.lost}")
            if not await self._send_everything(stream, claim):
                return False
        if (held := await self._opening.begin(claim)) is not None:
            await self._close_stream()
            self.health.not_ready("slot", held.why)
            return False
        stream.begin()
        self.health.ready("slot")
        metrics.RELAY_STREAMING.set(1)
        log.info(
            "streaming from the slot",
            extra={"action": "relay.streaming", "confirmed": lsn_text(stream.confirmed)},
        )
        return True

    async def _send_everything(self, stream: Stream, claim: Claim) -> bool:
        """Sends every row that was there before the new slot, as one transaction; False if asked to stop meanwhile."""
        async with self._opening.recovered(claim, self._stopping) as (everything, pages):
            async for page in pages:
                await self._accept(stream, page, largest=max(len(row[5] or b"") for row in page))
                metrics.RELAY_REBUILT_ROWS.inc(len(page))
                while not await self._sink.room(_TICK_S):
                    self._raise_failure()
                    self.health.beat("stream")
                if self._stopping.is_set():
                    return False
                self.health.beat("stream")
        stream.prefix.committed([everything])
        return True

    async def _close_stream(self) -> None:
        """Gives up what is in flight, then the slot: in this order, so that nobody writes behind our back."""
        stream = self._stream
        metrics.RELAY_STREAMING.set(0)
        if stream is not None:
            self.health.not_ready("slot", "not streaming")
            self.health.ready("topic")
            # Without the lock nothing of ours may come behind the records of the next one.
            if not self._source.lost:
                await self._sink.drained(_LET_GO_S)
            self._late.add(await self._sink.close())
            await self._confirm_last(stream)
            stream.end()
            self._set_aside_in.clear()
        self._stream = self._failure = None
        await self._source.close()

    # Streaming ------------------------------------------------------------------------------------------------------

    async def _pump(self, stream: Stream) -> None:
        """Reads what is there, or waits up to a tick."""
        if not await self._sink.room(_TICK_S):
            stream.not_listening()
            return
        messages = await self._source.receive()
        if not messages:
            return
        decoded = stream.decode(messages)
        if decoded.rows:
            await self._accept(stream, decoded.rows, largest=decoded.largest)
        stream.accepted(decoded)
        if decoded.committed or decoded.reply_requested:
            self._progress.set()

    async def _accept(self, stream: Stream, rows: Sequence[FeedRow], *, largest: int) -> None:
        """Puts the rows into batches; those that can never be records go into relay_refused first."""
        aggregates = {row[2] for row in rows}
        if (
            self._refused
            or largest > self._sink.largest_record
            or not aggregates <= stream.known
            or not all(row[3] for row in rows)
        ):
            rows, refused = sift(
                rows, largest=self._sink.largest_record, refused_ids=self._refused.keys()
            )
            for row, reason in refused:
                await self._set_aside(row, reason)
            await self._wait_for_topics(stream, {row[2] for row in rows})
        # What was read before a wait or a freeze is the next relay's by now, if the connection ended meanwhile.
        if self._source.lost:
            raise Unavailable("PostgreSQL (replication): the connection has ended")
        if rows:
            self._sink.append(rows)

    async def _wait_for_topics(self, stream: Stream, aggregates: set[bytes | None]) -> None:
        """Returns when each has a topic. Waiting here costs nothing; beginning again would repeat what was sent."""
        names = [name for name in aggregates - stream.known if name is not None]
        while True:
            try:
                await self._sink.know_topics(names)
            except Unavailable as error:
                if await wait_or_stop(self._stopping, _TICK_S):
                    raise
                self._raise_failure()
                self.health.not_ready("topic", str(error))
                self.health.beat("stream")
                stream.not_listening()
                log.warning(
                    "a row waits for its topic",
                    extra={"action": "relay.topic_waits", "error": str(error)},
                )
            else:
                stream.known |= aggregates
                self.health.ready("topic")
                return

    async def _set_aside(self, row: FeedRow, reason: Refusal) -> None:
        await self._store.set_aside(row, reason, self._refused.get(row[1]))
        self._set_aside_in[row[1]] = row[0]
        metrics.RELAY_REFUSED.labels(reason=reason.value).inc()
        log.error(
            "a row of the feed can never be a record and was set aside in relay_refused",
            extra={
                "action": "relay.row_refused",
                "id": str(row[1], "ascii") if row[1] else None,
                "reason": reason.value,
            },
        )

    # Confirming -----------------------------------------------------------------------------------------------------

    async def _confirm(self) -> float:
        """Confirms what is acknowledged, a few times a second at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._progress.wait(), _TICK_S)
        self._progress.clear()
        try:
            if (stream := self._stream) is not None:
                await stream.confirm()
                self._forget_refused(stream.confirmed)
            await self._opening.watch()
        except (Unavailable, Misconfigured) as error:
            # A server that shuts down waits until we have confirmed all, which it does not let us store any more.
            self._fail(error)
            if isinstance(error, Misconfigured):
                return _TICK_S
            raise
        return _CONFIRM_S

    def _forget_refused(self, confirmed: Lsn) -> None:
        for row_id, transaction in list(self._set_aside_in.items()):
            if NOWHERE < transaction.end <= confirmed:
                del self._set_aside_in[row_id]
                self._refused.pop(row_id, None)

    async def _confirm_last(self, stream: Stream) -> None:
        """Confirms what is acknowledged, if PostgreSQL still answers: what is not confirmed is sent again."""
        try:
            async with asyncio.timeout(_LET_GO_S):
                await stream.confirm(last=True)
        except (Unavailable, TimeoutError) as error:
            log.warning(
                "the last position could not be confirmed",
                extra={"action": "relay.not_confirmed", "error": str(error)},
            )

    async def _tick(self) -> float:
        """What depends on time alone, never on Kafka: the status that keeps the slot ours, gauges, readiness."""
        self._source.wake()
        stream, now = self._stream, time.monotonic()
        metrics.RELAY_IN_FLIGHT_ROWS.set(self._sink.rows_in_flight)
        metrics.RELAY_IN_FLIGHT_BYTES.set(self._sink.bytes_in_flight)
        oldest = None if stream is None else stream.prefix.oldest_committed_at()
        age = 0.0 if oldest is None else max(0.0, time.time() - oldest)
        metrics.RELAY_OLDEST_AGE.set(age)
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
        if stream is not None and stream.live:
            try:
                stream.keep_alive()
            except Unavailable as error:
                self._fail(error)
        # Also while another relay streams, since it knows nothing of them.
        await self._late.announce()
        return _TICK_S

    def _on_acknowledged(self) -> None:
        self._acknowledged_at = time.monotonic()
        self._progress.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None and self._stream is not None:
            self._failure = error
            self._source.wake()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
