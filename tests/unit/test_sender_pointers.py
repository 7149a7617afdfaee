"""What a record of mail.outbox.<lane> must be."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from streams.domain.errors import BadMessage
from streams.domain.pointers import read_pointer
from streams.domain.records import Record, TopicPartition
from streams.domain.topics import Lane

GOOD: dict[str, Any] = {
    "id": "01890a5d-ac96-774b-bcce-b302099a8057",
    "tenant": "shop",
    "lane": "bulk",
    "due": "2026-01-02T03:04:05.678901Z",
    "expires": "2026-01-03T03:04:05Z",
    "recipients": 3,
    "sender_domain": "example.com",
    "template": "welcome",
    "xid": "18446744073709551615",
    "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
}
KEY = b"0123456789abcdef0123456789abcdef"


def record(value: Any, key: bytes | None = KEY) -> Record:
    encoded = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    return Record(topic="mail.outbox.bulk", partition=2, offset=9, key=key, value=encoded)


def test_pointer_is_read_with_its_position() -> None:
    pointer = read_pointer(record(GOOD | {"new_field": 1}))
    assert (pointer.id, pointer.tenant, pointer.lane) == (UUID(GOOD["id"]), "shop", Lane.BULK)
    assert pointer.due == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert pointer.expires == datetime(2026, 1, 3, 3, 4, 5, tzinfo=UTC)
    assert (pointer.recipients, pointer.xid) == (3, 2**64 - 1)
    assert pointer.recipient_key == KEY.decode()
    assert (pointer.topic_partition, pointer.offset) == (TopicPartition("mail.outbox.bulk", 2), 9)


def test_fields_that_the_feed_leaves_out_are_none() -> None:
    given = {k: v for k, v in GOOD.items() if k not in ("expires", "template", "traceparent")}
    pointer = read_pointer(record(given))
    assert (pointer.expires, pointer.template, pointer.traceparent) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": "nonsense"}, "id"),
        ({"id": None}, "id"),
        ({"tenant": ""}, "tenant"),
        ({"lane": "express"}, "lane"),
        ({"due": "tomorrow"}, "due"),
        ({"due": "2026-01-02T03:04:05"}, "due"),
        ({"expires": 7}, "expires"),
        ({"recipients": 0}, "recipients"),
        ({"recipients": 51}, "recipients"),
        ({"recipients": True}, "recipients"),
        ({"recipients": "1"}, "recipients"),
        ({"xid": "-1"}, "xid"),
        ({"xid": "18446744073709551616"}, "xid"),
        ({"xid": 5}, "xid"),
        ({"traceparent": 5}, "traceparent"),
    ],
)
def test_bad_field_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadMessage, match=named):
        read_pointer(record(GOOD | change))


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"7", b'{"id":'])
def test_value_that_is_no_object_is_bad(value: bytes | None) -> None:
    with pytest.raises(BadMessage, match="not a pointer"):
        read_pointer(record(value))


@pytest.mark.parametrize(
    "key", [None, b"", b"ann@example.com", KEY.upper(), KEY + b"0", b"\xff" * 32]
)
def test_key_must_be_a_recipient_key(key: bytes | None) -> None:
    with pytest.raises(BadMessage, match="key is not 32 hex digits"):
        read_pointer(record(GOOD, key))


def test_reason_never_quotes_the_record() -> None:
    with pytest.raises(BadMessage) as caught:
        read_pointer(record(GOOD | {"lane": "ann@example.com"}))
    assert "ann" not in str(caught.value)
