"""What the relay needs: the slot's stream, Kafka, its checkpoints."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from streams.domain.acknowledgement import AcknowledgedPrefix, Lsn, Transaction
from streams.domain.feed_rows import FeedRow, Refusal
from streams.domain.slots import Checkpoint, Cluster, NewSlot, Slot


class ReplicationSource(Protocol):
    """One connection to the replication slot. Unavailable means: close() it and connect again."""

    async def connect(self) -> None: ...

    @property
    def backend_pid(self) -> int: ...

    @property
    def lost(self) -> bool:
        """Whether the connection is gone, and with it the lock: another relay may write by now."""

    async def try_lock(self) -> bool:
        """Becomes the one relay of this slot as long as the connection lives; False if another one is."""

    async def identify(self) -> Cluster: ...

    async def create_slot(self) -> NewSlot:
        """The exported snapshot lasts until the next call. Waits for the transactions that write at the moment."""

    async def drop_slot(self) -> None: ...

    async def start(self, position: Lsn) -> bool:
        """Starts the stream where the slot stands, or at the position if that is further on; False if somebody else reads the slot."""

    async def receive(self) -> list[bytes]:
        """Messages of the server, at least one, in order; none after wake()."""

    def wake(self) -> None: ...

    def send_status(self, *, written: Lsn, flushed: Lsn) -> None:
        """The server may forget what is before flushed. Never blocks."""

    async def close(self) -> None: ...


class RecordSink(Protocol):
    """Rows of the feed on their way to Kafka, in order within each partition. What is appended and not acknowledged
    when the sink fails or is closed may have been written or not."""

    largest_record: int

    async def open(
        self,
        prefix: AcknowledgedPrefix,
        *,
        on_progress: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Connects. Later calls back: records were acknowledged (the prefix knows), or one delivery failed for good,
        with Unavailable or RecordsRefused; then the sink is of no use any more."""

    async def know_topics(self, aggregates: Sequence[bytes]) -> None:
        """Must be called for an aggregatetype before its first row; Unavailable if there is no such topic."""

    def append(self, rows: Sequence[FeedRow]) -> None: ...

    @property
    def rows_in_flight(self) -> int: ...

    @property
    def bytes_in_flight(self) -> int: ...

    def flush(self) -> None:
        """Sends what waits for a fuller batch."""

    async def room(self, timeout_s: float) -> bool:
        """Waits until what is in flight is below the bounds, or for so long; whether it is."""

    async def drained(self, timeout_s: float) -> bool:
        """Waits until nothing is in flight, or for so long; whether it is."""

    async def close(self) -> list[bytes]:
        """Disconnects and forgets what is in flight; the keys of suppressions among it, which may be appended late."""


class RelayStore(Protocol):
    """What the relay reads and writes by SQL. Unavailable when PostgreSQL is away."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def check_setup(self) -> None:
        """Misconfigured, with one sentence, if server or database are not as the relay needs them."""

    async def slot(self) -> Slot | None: ...

    async def checkpoint(self) -> Checkpoint | None: ...

    async def store_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Returns when it is durable."""

    def snapshot(
        self, snapshot: str, transaction: Transaction
    ) -> AbstractAsyncContextManager[AsyncIterator[list[FeedRow]]]:
        """Pages of every row of the feed that the snapshot sees, in the order of seq."""

    async def set_aside(self, row: FeedRow, reason: Refusal, detail: str | None) -> None:
        """Returns when the row is kept where a person finds it."""

    async def announce(self, keys: Sequence[str]) -> None:
        """Puts the suppressions of these recipients, as they are, into the feed again."""

    async def writing_transactions(self) -> list[str]:
        """What a new slot waits for, one short text each."""
