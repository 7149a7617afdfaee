"""What single events say of a message, and which of several is told. (Order and repetition: tests/properties.)"""

from datetime import UTC, datetime, timedelta
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
    encode,
)
from streams.domain.derivation import fold
from streams.domain.errors import BadMessage
from streams.domain.event_records import read_event
from streams.domain.facts import Placed, distinct, outcome_of

AT = datetime(2026, 1, 15, 10, 0, tzinfo=UTC)
MESSAGE = UUID(int=1)
KEY = RecipientKey("0" * 32)


def placed(kind: EventType, name: str = "e", at_s: float = 0, **fields: Any) -> Placed:
    event = DeliveryEvent(
        id=EventId(name),
        type=kind,
        time=AT + timedelta(seconds=at_s),
        recipient_key=KEY,
        **fields,
    )
    return Placed(event=event, outbox_id=MESSAGE, tenant="shop")


def bounced(name: str, kind: BounceType, at_s: float) -> Placed:
    bounce = Bounce(type=kind, reason=BounceReason.OTHER, diagnostic=f"said by {name}")
    return placed(EventType.BOUNCED, name, at_s, bounce=bounce)


def test_a_permanent_bounce_is_told_before_earlier_and_less_final_ones() -> None:
    events = [
        bounced("soft", BounceType.TRANSIENT, 0),
        bounced("unclear", BounceType.UNDETERMINED, 1),
        bounced("late", BounceType.PERMANENT, 3),
        bounced("hard", BounceType.PERMANENT, 2),
    ]
    (outcome,) = fold(events).outcomes
    assert outcome.bounce is not None
    assert (outcome.bounce.event_id, outcome.bounce.diagnostic) == ("hard", "said by hard")
    (outcome,) = fold(events[:2]).outcomes
    assert outcome.bounce is not None
    assert outcome.bounce.event_id == "unclear"


def test_each_time_is_the_earliest() -> None:
    (outcome,) = fold([placed(EventType.OPENED, "b", 5), placed(EventType.OPENED, "a", 3)]).outcomes
    assert outcome.times == {EventType.OPENED: AT + timedelta(seconds=3)}


def test_the_last_delivery_is_the_latest() -> None:
    (state,) = fold(
        [placed(EventType.DELIVERED, "b", 5), placed(EventType.DELIVERED, "a", 3)]
    ).states
    assert state.last_delivery == AT + timedelta(seconds=5)


def test_an_automatic_reply_is_no_bounce_of_the_message() -> None:
    bounce = Bounce(type=BounceType.TRANSIENT, reason=BounceReason.AUTO_REPLY)
    assert outcome_of(placed(EventType.BOUNCED, bounce=bounce)) is None


def test_a_complaint_that_the_provider_made_up_is_nobodys() -> None:
    complaint = Complaint(subtype="OnAccountSuppressionList")
    assert outcome_of(placed(EventType.COMPLAINED, complaint=complaint)) is None


def test_a_report_that_mail_is_no_spam_is_no_complaint() -> None:
    assert outcome_of(placed(EventType.COMPLAINED, complaint=Complaint(type="not-spam"))) is None


def test_an_event_of_an_unknown_message_has_no_outcome() -> None:
    assert outcome_of(Placed(event=placed(EventType.DELIVERED).event)) is None


def test_the_tagged_copy_of_a_fact_is_the_one_that_stays() -> None:
    bare = placed(EventType.DELIVERED).event
    tagged = placed(EventType.DELIVERED, attempt_id=UUID(int=9)).event
    assert distinct([bare, tagged]) == distinct([tagged, bare]) == [tagged]


# Reading records


def record(**changes: Any) -> bytes:
    body = orjson.loads(encode(placed(EventType.DELIVERED, "e-1").event))
    for path, value in changes.items():
        target = body["data"] if path in body["data"] else body
        target[path] = value
    return orjson.dumps(body)


def test_an_event_survives_its_record() -> None:
    event = placed(EventType.DELIVERED, "e-1").event
    assert read_event(encode(event)) == event


def test_a_null_character_is_replaced() -> None:
    event = read_event(record(reason="a\0b", raw={"x\0": ["\0", {"y": "\\u0000"}]}))
    assert event.reason == "a\ufffdb"
    assert event.raw == {"x\ufffd": ["\ufffd", {"y": "\\u0000"}]}


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"{}",
        record(recipient_key="user@example.com"),
        record(recipient_key="0" * 31),
        record(tenant=7),
        record(provider_message_id=["p"]),
        record(time="user@example.com"),
        record(time="0001-01-01T00:00:00+05:00"),
        record(type="mailstreams.email.user@example.com"),
        record(attempt_id="user@example.com"),
        record()[:-9] + b'"\\u0000',
    ],
)
def test_what_is_no_event_is_refused_without_quoting_it(value: bytes | None) -> None:
    with pytest.raises(BadMessage) as refusal:
        read_event(value)
    assert "user@" not in str(refusal.value)
    assert str(refusal.value).startswith("not a delivery event: ")
