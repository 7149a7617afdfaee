"""Messages of pgoutput become rows, transactions and positions."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.domain.acknowledgement import Lsn
from streams.domain.errors import Misconfigured, Unavailable
from streams.domain.feed_rows import COLUMNS
from streams.domain.pgoutput import Decoder, status_update

TABLE = (*COLUMNS[:6], "ts", "seq", "xid")


def stream(message: bytes) -> bytes:
    return b"w" + struct.pack(">QQq", 1, 2, 3) + message


def relation(columns: Sequence[str], oid: int = 7, name: bytes = b"outbox_feed") -> bytes:
    head = b"R" + struct.pack(">I", oid) + b"public\0" + name + b"\0d"
    described = b"".join(
        b"\0" + column.encode() + b"\0" + struct.pack(">Ii", 25, -1) for column in columns
    )
    return stream(head + struct.pack(">H", len(columns)) + described)


def insert(values: Sequence[bytes | None], oid: int = 7) -> bytes:
    columns = b"".join(
        b"n" if value is None else b"t" + struct.pack(">I", len(value)) + value for value in values
    )
    return stream(b"I" + struct.pack(">I", oid) + b"N" + struct.pack(">H", len(values)) + columns)


def begin(clock: int = 0) -> bytes:
    return stream(b"B" + struct.pack(">QqI", 90, clock, 5))


def commit(end: int) -> bytes:
    return stream(b"C" + struct.pack(">BQQq", 0, end - 1, end, 0))


def keepalive(position: int, *, reply: bool = False) -> bytes:
    return b"k" + struct.pack(">QqB", position, 0, reply)


def values_of(
    columns: Sequence[str], row: Sequence[bytes | None], extra: bytes = b"x"
) -> list[bytes | None]:
    return [row[COLUMNS.index(c)] if c in COLUMNS else extra for c in columns]


ROW = (b"id", b"topic", b"key", b"kind", b'{"a": 1}', None, b"42")

cells = st.none() | st.binary(max_size=300)


@given(
    row=st.tuples(*(cells for _ in COLUMNS)),
    columns=st.permutations(TABLE),
    extra=st.binary(max_size=5),
)
def test_a_row_is_mapped_by_the_names_of_its_columns_in_any_order(
    row: tuple[bytes | None, ...], columns: list[str], extra: bytes
) -> None:
    decoder = Decoder()
    out = decoder.decode([relation(columns), begin(), insert(values_of(columns, row, extra))])
    [(transaction, *values)] = out.rows
    assert tuple(values) == row
    assert transaction.ordinal == 1


def test_a_transaction_knows_its_commit_time_and_its_end() -> None:
    decoder = Decoder()
    first = decoder.decode([relation(TABLE), begin(1_000_000), insert(values_of(TABLE, ROW))])
    assert (first.committed, decoder.in_transaction) == ([], True)
    second = decoder.decode([commit(100)])
    assert second.committed == [first.rows[0][0]]
    assert (second.committed[0].end, decoder.in_transaction) == (100, False)
    assert second.committed[0].committed_at == 946_684_801.0


def test_an_added_column_is_ignored_after_the_new_relation_message() -> None:
    decoder = Decoder()
    wider = ("note", *TABLE)
    out = decoder.decode(
        [
            *(relation(TABLE), begin(), insert(values_of(TABLE, ROW)), commit(100)),
            *(relation(wider), begin(), insert(values_of(wider, ROW)), commit(200)),
        ]
    )
    assert [tuple(values) for _, *values in out.rows] == [ROW, ROW]
    assert [t.ordinal for t, *_ in out.rows] == [1, 2]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_vanished_column_is_misconfigured_and_named(column: str) -> None:
    left = [name for name in TABLE if name != column]
    with pytest.raises(Misconfigured, match=rf"public\.outbox_feed .* no column {column}:"):
        Decoder().decode([relation(left)])


def test_a_row_before_its_relation_is_an_error_and_not_a_gap() -> None:
    with pytest.raises(Unavailable):
        Decoder().decode([begin(), insert(values_of(TABLE, ROW))])


def test_a_row_that_ends_too_early_is_an_error_and_not_a_gap() -> None:
    whole = insert(values_of(TABLE, ROW))
    with pytest.raises(Unavailable):
        Decoder().decode([relation(TABLE), begin(), whole[:50]])


def test_the_last_keepalive_gives_the_position_and_any_of_them_asks() -> None:
    out = Decoder().decode([keepalive(5, reply=True), keepalive(9)])
    assert (out.position, out.reply_requested) == (9, True)


def test_messages_that_are_no_insert_are_passed_over() -> None:
    others = [stream(kind + bytes(30)) for kind in (b"U", b"D", b"Y", b"O", b"M", b"T")]
    out = Decoder().decode([relation(TABLE), begin(), *others, commit(7)])
    assert (out.rows, len(out.committed)) == ([], 1)


def test_a_status_tells_what_was_received_and_what_may_be_forgotten() -> None:
    kind, written, flushed, applied, clock, reply = struct.unpack(
        ">cQQQqB", status_update(written=Lsn(9), flushed=Lsn(5), now=946_684_801.5)
    )
    assert (kind, written, flushed, applied, clock, reply) == (b"r", 9, 5, 5, 1_500_000, 0)
