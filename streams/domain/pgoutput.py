"""PostgreSQL's logical replication messages (pgoutput, protocol 1) of an insert-only outbox table.

Only the mapped columns of inserts are cut out, as PostgreSQL's own text. The format: PostgreSQL's documentation,
"Streaming Replication Protocol" and "Logical Replication Message Formats".
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from streams.domain.acknowledgement import NOWHERE, Lsn, Transaction
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.feed_rows import COLUMNS, FeedRow

# Seconds between 1970 and PostgreSQL's epoch, 2000-01-01.
_EPOCH_S: Final = 946_684_800
_WIDTH: Final = len(COLUMNS)
_KEEPALIVE: Final = struct.Struct(">xQqB")
_STATUS: Final = struct.Struct(">cQQQqB")
# Bytes of the wrapper of a message of the stream: 'w', start, end of WAL, clock.
_WRAPPER: Final = 25
# Begin: the position of its commit, the commit's time. Commit: flags, its position, the end of the transaction.
_BEGIN_TIME: Final = slice(_WRAPPER + 9, _WRAPPER + 17)
_COMMIT_END: Final = slice(_WRAPPER + 10, _WRAPPER + 18)
# Where the columns of an insert begin: after the relation's id, 'N' and their number.
_FIRST_COLUMN: Final = _WRAPPER + 8
_COLUMN: Final = struct.Struct(">BI").unpack_from
# The values of unmapped columns all go into one place behind the mapped ones.
_UNMAPPED: Final = _WIDTH


@dataclass(slots=True, kw_only=True)
class Decoded:
    """What some messages held, in their order."""

    rows: list[FeedRow] = field(default_factory=list)
    committed: list[Transaction] = field(default_factory=list)
    largest: int = 0
    position: Lsn = NOWHERE
    reply_requested: bool = False


def status_update(*, written: Lsn, flushed: Lsn, now: float) -> bytes:
    """A standby status update: what was received, and what may be forgotten. now: seconds since 1970."""
    clock = int((now - _EPOCH_S) * 1_000_000)
    return _STATUS.pack(b"r", max(written, flushed), flushed, flushed, clock, 0)


class Decoder:
    """Decodes one stream from its start. Raises Misconfigured if a mapped column is not there (any more)."""

    def __init__(self) -> None:
        self._plans: dict[bytes, tuple[int, ...]] = {}
        self._open: Transaction | None = None
        self.ordinal = 0

    @property
    def in_transaction(self) -> bool:
        """Whether the last message was inside a transaction."""
        return self._open is not None

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes messages as they came from the server."""
        out = Decoded()
        rows, committed = out.rows, out.committed
        transaction, from_bytes = self._open, int.from_bytes
        largest = 0
        for data in messages:
            if data[0] == 0x77:  # w: one message of the stream
                tag = data[_WRAPPER]
                if tag == 0x49:  # I: insert
                    rows.append(self._insert(transaction, data))
                    if len(data) > largest:  # noqa: PLR1730 twice as fast as max()
                        largest = len(data)
                elif tag == 0x42:  # B: begin
                    self.ordinal += 1
                    at = from_bytes(data[_BEGIN_TIME], "big", signed=True)
                    transaction = Transaction(self.ordinal, at / 1_000_000 + _EPOCH_S)
                elif tag == 0x43:  # C: commit
                    if transaction is None:
                        raise Unavailable("PostgreSQL sent a Commit without a Begin")
                    transaction.end = Lsn(from_bytes(data[_COMMIT_END], "big"))
                    committed.append(transaction)
                    transaction = None
                elif (
                    tag == 0x52
                ):  # R: relation; precedes the first row, and the first after each change of the table
                    self._relation(data)
                # Everything else cannot change an insert-only table: updates, deletes, types, origins, messages.
            elif data[0] == 0x6B:  # k: keepalive
                position, _, reply = _KEEPALIVE.unpack_from(data)
                out.position = Lsn(position)
                out.reply_requested = out.reply_requested or bool(reply)
        self._open = transaction
        out.largest = largest
        return out

    def _insert(self, transaction: Transaction | None, data: bytes) -> FeedRow:
        plan = self._plans.get(data[26:30])
        if plan is None or transaction is None:
            raise Unavailable("PostgreSQL sent a row without its relation or transaction")
        values: list[bytes | None] = [None] * (_WIDTH + 1)
        at = _FIRST_COLUMN
        try:
            for target in plan:
                kind, length = _COLUMN(data, at)
                if kind == 0x74:  # t: text
                    start = at + 5
                    at = start + length
                    values[target] = data[start:at]
                else:  # n: NULL, without a length. Unchanged TOAST values do not occur in inserts
                    at += 1
        except struct.error:
            # NULLs at the very end leave too few bytes for a length.
            if not data[at:] or data[at:].strip(b"n"):
                raise Unavailable("PostgreSQL sent a row that ends too early") from None
        values.pop()
        return (transaction, *values)  # type: ignore[return-value]  # as many as COLUMNS

    def _relation(self, data: bytes) -> None:
        namespace_end = data.index(0, _WRAPPER + 5)
        name_end = data.index(0, namespace_end + 1)
        table = data[_WRAPPER + 5 : name_end].replace(b"\0", b".").decode()
        count = int.from_bytes(data[name_end + 2 : name_end + 4], "big")
        at = name_end + 4
        targets = [_UNMAPPED] * count
        missing = list(COLUMNS)
        for place in range(count):
            end = data.index(0, at + 1)
            name = data[at + 1 : end].decode()
            if name in missing:
                missing.remove(name)
                targets[place] = COLUMNS.index(name)
            at = end + 9
        if missing:
            raise Misconfigured(
                f"table {table} is published but has no column {', '.join(missing)}: the relay needs each of "
                f"{', '.join(COLUMNS)}; give it back, or take the table out of the publication"
            )
        last = max(place for place, target in enumerate(targets) if target != _UNMAPPED)
        self._plans[data[_WRAPPER + 1 : _WRAPPER + 5]] = tuple(targets[: last + 1])
