"""Headers of a record, and rows that can never be one."""

import pytest

from streams.domain.acknowledgement import Transaction
from streams.domain.feed_rows import FeedRow, Refusal, headers, sift, traceparent

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "context",
    [
        b"traceparent=" + PARENT,
        b"traceparent=" + PARENT + b"\n",
        b"#Mon Nov 30 17:28:24 UTC 2026\ntraceparent=" + PARENT + b"\ntracestate=a\\=b\n",
        b"tracestate=x\r\ntraceparent = " + PARENT.replace(b"-", b"\\-"),
    ],
)
def test_the_trace_parent_is_found_in_the_text_of_java_properties(context: bytes) -> None:
    assert traceparent(context) == PARENT


@pytest.mark.parametrize("context", [b"", b"tracestate=a", b"traceparent=", b"traceparent", b"\n"])
def test_a_context_without_a_trace_parent_gives_no_header(context: bytes) -> None:
    assert [name for name, _ in headers(b"i", b"t", b"1", context)] == ["id", "type", "seq"]


def test_a_null_column_is_a_header_without_a_value() -> None:
    assert headers(b"i", None, b"1", None)[1] == ("type", None)


def row(**columns: bytes | None) -> FeedRow:
    given = {"id": b"i", "topic": b"outbox.bulk", "key": b"k", "payload": b"{}"} | columns
    return (
        Transaction(1, 0.0),
        given["id"],
        given["topic"],
        given["key"],
        b"t",
        given["payload"],
        None,
        b"1",
    )


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": None}, Refusal.NO_KEY),
        ({"key": b""}, Refusal.NO_KEY),
        ({"topic": None}, Refusal.NO_TOPIC),
        ({"topic": b""}, Refusal.NO_TOPIC),
        ({"topic": b"with space"}, Refusal.NO_TOPIC),
        ({"topic": "ü".encode()}, Refusal.NO_TOPIC),
        ({"topic": b"x" * 201}, Refusal.NO_TOPIC),
        ({"payload": b"x" * 101}, Refusal.TOO_LARGE),
        ({"id": b"bad"}, Refusal.REFUSED_BY_KAFKA),
    ],
)
def test_a_row_that_can_never_be_a_record_is_told_apart_with_its_reason(
    columns: dict[str, bytes | None], reason: Refusal
) -> None:
    bad, good = row(**columns), row()
    assert sift([good, bad, good], largest=100, refused_ids={b"bad"}) == (
        [good, good],
        [(bad, reason)],
    )


def test_a_tombstone_and_a_payload_at_the_bound_are_good() -> None:
    rows = [row(payload=None), row(payload=b"x" * 100)]
    assert sift(rows, largest=100, refused_ids=set()) == (rows, [])
