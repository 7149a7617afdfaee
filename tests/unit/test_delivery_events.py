"""The record of mail.delivery-events, there and back."""

from datetime import UTC, datetime
from typing import Any
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
    UnknownEvent,
    decode,
    encode,
    interpret,
)
from streams.domain.errors import BadMessage
from streams.domain.ses_events import read_notice
from tests.sns_signing import NOW, SALT, delivery, ses_event

EVENT = DeliveryEvent(
    id=EventId("e1"),
    type=EventType.BOUNCED,
    time=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    recipient_key=RecipientKey("0" * 32),
    tenant="shop",
    outbox_id=UUID("0190b2c4-0000-7000-8000-000000000001"),
    attempt_id=UUID("0190b2c4-0000-7000-8000-000000000002"),
    provider_message_id="0107-1",
    sender_domain="example.com",
    dedup_key="order-4711",
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
        encode(EVENT).replace(b"mailstreams.email.", b""),
        encode(EVENT).replace(b"event:v1", b"event:v2"),
        encode(EVENT).replace(b'{"eventType":"Bounce"}', b'["someone@example.com"]'),
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


def changed(**members: Any) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(encode(EVENT))
    body["data"] |= members.pop("data", {})
    return body | members


def test_a_subscriber_reads_what_the_fold_reads() -> None:
    assert interpret(orjson.loads(encode(EVENT))) == EVENT


def test_new_words_are_no_error_for_a_subscriber_and_one_for_the_fold() -> None:
    body = changed(data={"bounce": {"type": "expected", "reason": "greylisted"}})
    read = interpret(body)
    assert isinstance(read, DeliveryEvent)
    assert read.bounce == Bounce(type=BounceType.UNDETERMINED, reason=BounceReason.OTHER)
    with pytest.raises(BadMessage, match=r"data\.bounce\.type"):
        decode(orjson.dumps(body))


def test_a_new_type_is_an_unknown_event_for_a_subscriber_and_an_error_for_the_fold() -> None:
    body = changed(type="mailstreams.email.forwarded")
    assert interpret(body) == UnknownEvent(
        id=EVENT.id,
        type="mailstreams.email.forwarded",
        time=EVENT.time,
        recipient_key=EVENT.recipient_key,
        body=body,
    )
    with pytest.raises(BadMessage, match="type"):
        decode(orjson.dumps(body))


@pytest.mark.parametrize("lost", ["id", "time", "data"])
def test_an_unknown_event_still_has_to_be_an_event(lost: str) -> None:
    body = changed(type="mailstreams.email.forwarded")
    del body[lost]
    with pytest.raises(BadMessage, match=lost):
        interpret(body)


@pytest.mark.parametrize(
    ("tags", "source", "domain"),
    [
        ({"ses:from-domain": ["Shop.example.com"]}, "other@example.org", "shop.example.com"),
        ({}, "Shop <shop@Example.com>", "example.com"),
        ({}, "<>", None),
        ({}, None, None),
        ({"ses:from-domain": ["user1@example.com"]}, "shop@example.com", None),
        ({"ses:from-domain": []}, "shop@localhost", None),
    ],
)
def test_the_domain_of_the_sender_is_that_of_the_provider_else_of_the_address(
    tags: dict[str, list[str]], source: str | None, domain: str | None
) -> None:
    notice = ses_event("Delivery", delivery(), tags=tags, source=source)
    (event,) = read_notice(orjson.dumps(notice).decode(), salt=SALT, received=NOW).events
    assert event.sender_domain == domain


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        DeliveryEvent(
            id=EventId("e"),
            type=EventType.DELIVERED,
            time=datetime(2026, 1, 2),  # noqa: DTZ001 the point of the test
            recipient_key=RecipientKey("0" * 32),
        )
