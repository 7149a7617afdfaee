"""The record of mail.delivery-events, there and back."""

from datetime import UTC, datetime
from uuid import UUID

import orjson
import pytest

from streams.domain.addresses import RecipientKey
from streams.domain.delivery_events import (
    Bounce,
    BounceReason,
    BounceType,
    Complaint,
    DeliveryEvent,
    EventId,
    EventType,
    decode,
    encode,
)
from streams.domain.errors import BadMessage

EVENT = DeliveryEvent(
    id=EventId("e1"),
    type=EventType.BOUNCED,
    time=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    recipient_key=RecipientKey("0" * 32),
    tenant="shop",
    outbox_id=UUID("0190b2c4-0000-7000-8000-000000000001"),
    attempt_id=UUID("0190b2c4-0000-7000-8000-000000000002"),
    provider_message_id="0107-1",
    bounce=Bounce(type=BounceType.PERMANENT, reason=BounceReason.MAILBOX_UNKNOWN, status="5.1.1"),
    complaint=Complaint(type="abuse"),
    raw={"eventType": "Bounce"},
)


def test_an_event_survives_its_record() -> None:
    assert decode(encode(EVENT)) == EVENT


def test_the_record_is_a_cloud_event_of_version_1() -> None:
    body = orjson.loads(encode(EVENT))
    assert {"specversion", "id", "source", "type"} <= body.keys()
    assert body["specversion"] == "1.0"
    assert body["type"] == "mailstreams.email.bounced"
    assert body["time"] == "2026-01-02T03:04:05.678+00:00"


def test_unknown_fields_are_ignored() -> None:
    body = orjson.loads(encode(EVENT))
    body["new"] = body["data"]["newer"] = {"a": [1]}
    assert decode(orjson.dumps(body)) == EVENT


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"\xff",
        b'{"data": null}',
        encode(EVENT).replace(b"bounced", b"burst"),
        encode(EVENT).replace(b"2026-01-02", b"2026-13-02"),
        encode(EVENT).replace(b"0190b2c4-0000-7000-8000-000000000001", b"not-a-uuid"),
        encode(EVENT).replace(b'"0190b2c4-0000-7000-8000-000000000001"', b"17"),
        encode(EVENT).replace(b"+00:00", b""),
        encode(EVENT).replace(b'"shop"', b"17"),
        encode(EVENT).replace(b'"0107-1"', b'["someone@example.com"]'),
        encode(EVENT).replace(b'"mailbox-unknown"', b'"someone@example.com"'),
    ],
)
def test_what_is_no_event_is_a_bad_message_that_repeats_no_value(value: bytes) -> None:
    with pytest.raises(BadMessage) as refused:
        decode(value)
    assert "someone@example.com" not in str(refused.value)
    assert "burst" not in str(refused.value)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        DeliveryEvent(
            id=EventId("e"),
            type=EventType.DELIVERED,
            time=datetime(2026, 1, 2),  # noqa: DTZ001 the point of the test
            recipient_key=RecipientKey("0" * 32),
        )
