"""One stream from the slot, from its start to its first failure: what was read of it and what is confirmed."""

import time
from collections.abc import Sequence
from typing import Final

from streams.domain.acknowledgement import AcknowledgedPrefix
from streams.domain.errors import Unavailable
from streams.domain.pgoutput import Decoded, Decoder
from streams.domain.slots import Checkpoint
from streams.ports.relay import RelayStore, ReplicationSource
from streams.relay_slot import Claim
from streams.runtime import metrics

# A status at least so often: a third of the time after which the server gives a silent client up.
_STATUS_S: Final = 3.0
# An idle stream is confirmed seldom, since each confirmation writes WAL itself.
_IDLE_CONFIRM_S: Final = 5.0
# The server sends a keepalive every few seconds; silence for so long is a dead connection.
_SILENCE_S: Final = 30.0


class Stream:
    """Positions and times of one stream. live: the server streams, so that a status may be sent."""

    def __init__(self, claim: Claim, *, source: ReplicationSource, store: RelayStore) -> None:
        self._source = source
        self._store = store
        self._cluster = claim.cluster
        self._decoder = Decoder()
        self._written = claim.start
        self._asked = False
        self._status_at = self._confirmed_at = self._heard_at = 0.0
        self.confirmed = claim.start
        self.prefix = AcknowledgedPrefix()
        self.known: set[bytes | None] = set()
        self.live = False

    def begin(self) -> None:
        """The server has begun to stream."""
        self.live = True
        self._heard_at = time.monotonic()

    def not_listening(self) -> None:
        """We do not read at the moment, so silence says nothing of the server."""
        self._heard_at = time.monotonic()

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """What messages of the server hold."""
        self._heard_at = time.monotonic()
        return self._decoder.decode(messages)

    def accepted(self, decoded: Decoded) -> None:
        """All rows of these messages are in batches: what they complete may be confirmed once it is acknowledged."""
        if decoded.committed:
            # One entry for all of them: what was read together is confirmed together.
            self.prefix.committed(decoded.committed[-1:])
            self._written = decoded.committed[-1].end
            metrics.RELAY_TRANSACTIONS.inc(len(decoded.committed))
        if decoded.position and not self._decoder.in_transaction:
            self._written = max(self._written, decoded.position)
            self.prefix.reached(decoded.position, self._decoder.ordinal)
        if decoded.reply_requested:
            self._asked = True
            self._send_status()

    async def confirm(self, *, last: bool = False) -> None:
        """Confirms the acknowledged prefix, if that is worth a write. Unavailable: nothing was confirmed."""
        position, now = self.prefix.confirmable(), time.monotonic()
        if position <= self.confirmed:
            return
        rested = now - self._confirmed_at > _IDLE_CONFIRM_S
        if not (self.prefix.commit > self.confirmed or self._asked or rested or last):
            return
        # Stored before it is confirmed: a slot beyond the stored position was moved by somebody else.
        await self._store.store_checkpoint(Checkpoint(lsn=position, cluster=self._cluster))
        self.confirmed, self._asked, self._confirmed_at = position, False, now
        if self.live:
            self._send_status()

    def keep_alive(self) -> None:
        """Sends the status that is due; Unavailable if the server has been silent for too long."""
        now = time.monotonic()
        if now - self._status_at >= _STATUS_S:
            self._send_status()
        if now - self._heard_at > _SILENCE_S:
            raise Unavailable(f"PostgreSQL has been silent for {_SILENCE_S:g} s")

    def end(self) -> None:
        """The connection is closed."""
        self.live = False

    def _send_status(self) -> None:
        self._status_at = time.monotonic()
        self._source.send_status(written=self._written, flushed=self.confirmed)
