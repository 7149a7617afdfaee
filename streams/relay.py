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

from streams.domain.acknowledgement import AcknowledgedPrefix, lsn_text
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.feed_rows import FeedRow, RecordRefused, Refusal, sift
from streams.domain.pgoutput import Decoder
from streams.domain.slots import Checkpoint, Held
from streams.ports import RecordSink, RelayStore, ReplicationSource
from streams.relay_slot import Claim, SlotOpening
from streams.runtime import metrics
from streams.runtime.lifecycle import Health, run_loop

log = logging.getLogger(__name__)

_STANDBY_S: Final = 0.5
# A status at least so often: a third of the time after which the server gives a silent client up.
_STATUS_S: Final = 3.0
_CONFIRM_S: Final = 0.1
# An idle stream is confirmed seldom, since each confirmation writes WAL itself.
_IDLE_CONFIRM_S: Final = 5.0
_TICK_S: Final = 1.0
# The server sends a keepalive every few seconds; silence for so long is a dead connection.
_SILENCE_S: Final = 30.0
_SLOW_KAFKA_S: Final = 15.0
# How long records on their way may still arrive when the stream is given up.
_LET_GO_S: Final = 2.0


class _Stream:
    """One stream from the slot, from its start to its first failure."""

    __slots__ = (
        "asked",
        "cluster",
        "confirmed",
        "decoder",
        "heard_at",
        "known",
        "live",
        "prefix",
        "written",
    )

    def __init__(self, claim: Claim) -> None:
        self.cluster = claim.cluster
        self.decoder = Decoder()
        self.prefix = AcknowledgedPrefix()
        self.confirmed = claim.start
        self.written = claim.start
        self.known: set[bytes | None] = set()
        self.live = False
        self.asked = False
        self.heard_at = time.monotonic()


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
        self._drain_s = drain_s
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        self._progress = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()
        self._stream: _Stream | None = None
        self._failure: Exception | None = None
        self._refused: dict[bytes | None, str] = {}
        self._status_at = self._confirmed_at = self._acknowledged_at = 0.0

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
        stream = self._stream = _Stream(claim)
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
        stream.live = True
        stream.heard_at = time.monotonic()
        self.health.ready("slot")
        metrics.RELAY_STREAMING.set(1)
        log.info(
            "streaming from the slot",
            extra={"action": "relay.streaming", "confirmed": lsn_text(stream.confirmed)},
        )
        return True

    async def _send_everything(self, stream: _Stream, claim: Claim) -> bool:
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
            await self._sink.drained(_LET_GO_S)
            await self._sink.close()
            await self._confirm_last(stream)
        self._stream = self._failure = None
        await self._source.close()

    # Streaming ------------------------------------------------------------------------------------------------------

    async def _pump(self, stream: _Stream) -> None:
        """Reads what is there, or waits up to a tick."""
        if not await self._sink.room(_TICK_S):
            stream.heard_at = time.monotonic()
            return
        messages = await self._source.receive()
        if not messages:
            return
        stream.heard_at = time.monotonic()
        decoded = stream.decoder.decode(messages)
        if decoded.rows:
            await self._accept(stream, decoded.rows, largest=decoded.largest)
        if decoded.committed:
            stream.prefix.committed(decoded.committed)
            stream.written = decoded.committed[-1].end
            metrics.RELAY_TRANSACTIONS.inc(len(decoded.committed))
            self._progress.set()
        if decoded.position and not stream.decoder.in_transaction:
            stream.written = max(stream.written, decoded.position)
            stream.prefix.reached(decoded.position, stream.decoder.ordinal)
        if decoded.reply_requested:
            stream.asked = True
            self._progress.set()
            self._send_status(stream)

    async def _accept(self, stream: _Stream, rows: Sequence[FeedRow], *, largest: int) -> None:
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
            aggregates = {row[2] for row in rows}
            await self._sink.know_topics([name for name in aggregates if name is not None])
            stream.known |= aggregates
        if rows:
            self._sink.append(rows)

    async def _set_aside(self, row: FeedRow, reason: Refusal) -> None:
        await self._store.set_aside(row, reason, self._refused.get(row[1]))
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
            if self._stream is not None:
                await self._confirm_prefix(self._stream)
            await self._opening.watch()
        except (Unavailable, Misconfigured) as error:
            # A server that shuts down waits until we have confirmed all, which it does not let us store any more.
            self._fail(error)
            if isinstance(error, Misconfigured):
                return _TICK_S
            raise
        return _CONFIRM_S

    async def _confirm_prefix(self, stream: _Stream, *, last: bool = False) -> None:
        position = stream.prefix.confirmable()
        now = time.monotonic()
        if position <= stream.confirmed:
            return
        rested = now - self._confirmed_at > _IDLE_CONFIRM_S
        if not (stream.prefix.commit > stream.confirmed or stream.asked or rested or last):
            return
        # Stored before it is confirmed: a slot beyond the stored position was moved by somebody else.
        await self._store.store_checkpoint(Checkpoint(lsn=position, cluster=stream.cluster))
        stream.confirmed, stream.asked, self._confirmed_at = position, False, now
        if stream is self._stream and stream.live:
            self._send_status(stream)

    async def _confirm_last(self, stream: _Stream) -> None:
        """Confirms what is acknowledged, if PostgreSQL still answers: what is not confirmed is sent again."""
        try:
            async with asyncio.timeout(_LET_GO_S):
                await self._confirm_prefix(stream, last=True)
        except (Unavailable, TimeoutError) as error:
            log.warning(
                "the last position could not be confirmed",
                extra={"action": "relay.not_confirmed", "error": str(error)},
            )

    def _send_status(self, stream: _Stream) -> None:
        self._status_at = time.monotonic()
        try:
            self._source.send_status(written=stream.written, flushed=stream.confirmed)
        except Unavailable as error:
            self._fail(error)

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
                "kafka", f"nothing is acknowledged for {_SLOW_KAFKA_S:g} s or more"
            )
        else:
            self.health.ready("kafka")
        if stream is None or not stream.live:
            return _TICK_S
        if now - self._status_at >= _STATUS_S:
            self._send_status(stream)
        if now - stream.heard_at > _SILENCE_S:
            self._fail(Unavailable(f"PostgreSQL has been silent for {_SILENCE_S:g} s"))
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
