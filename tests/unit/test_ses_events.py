"""A notification of SES as delivery events."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from streams.domain.addresses import RecipientKey, recipient_key
from streams.domain.delivery_events import (
    BounceReason,
    BounceType,
    DeliveryEvent,
    EventType,
    decode,
    encode,
)
from streams.domain.ses_events import MAX_RECIPIENTS, Notice, NoticeKind, read_notice
from tests.sns_signing import NOW, SALT, bounce, complaint, delivery, ses_event

ATTEMPT = "0190b2c4-0000-7000-8000-000000000001"
OUTBOX = "0190b2c4-0000-7000-8000-000000000002"


def notice(body: dict[str, Any] | str, *, received: datetime = NOW) -> Notice:
    return read_notice(
        body if isinstance(body, str) else json.dumps(body), salt=SALT, received=received
    )


def events(body: dict[str, Any] | str) -> tuple[DeliveryEvent, ...]:
    found = notice(body)
    assert found.kind is NoticeKind.EVENTS, found
    return found.events


def event(body: dict[str, Any] | str) -> DeliveryEvent:
    (found,) = events(body)
    return found


def key(address: str = "user1@example.com") -> RecipientKey:
    return recipient_key(address, SALT)


CLICK = {"timestamp": "2026-01-15T10:01:00.000Z", "link": "https://example.com/a?token=SECRET"}
OPT_OUT = {
    "timestamp": "2026-01-15T10:10:00.000Z",
    "newTopicPreferences": {"unsubscribeAll": True},
    "oldTopicPreferences": {"unsubscribeAll": False},
}


@pytest.mark.parametrize(
    ("body", "type_", "time"),
    [
        (ses_event("Send", {}), EventType.ACCEPTED, "10:00:00"),
        (ses_event("Delivery", delivery()), EventType.DELIVERED, "10:00:02"),
        (
            ses_event(
                "DeliveryDelay",
                {
                    "timestamp": "2026-01-15T10:10:00.000Z",
                    "delayType": "MailboxFull",
                    "delayedRecipients": [{"emailAddress": "user1@example.com"}],
                },
            ),
            EventType.DELAYED,
            "10:10:00",
        ),
        (ses_event("Bounce", bounce()), EventType.BOUNCED, "10:00:05"),
        (ses_event("Complaint", complaint()), EventType.COMPLAINED, "12:00:00"),
        (ses_event("Reject", {"reason": "Bad content"}), EventType.REJECTED, "10:00:00"),
        (
            ses_event("Rendering Failure", {"errorMessage": "x"}),
            EventType.RENDERING_FAILED,
            "10:00:00",
        ),
        (
            ses_event("Open", {"timestamp": "2026-01-15T10:05:00.000Z"}),
            EventType.OPENED,
            "10:05:00",
        ),
        (ses_event("Click", CLICK), EventType.CLICKED, "10:01:00"),
        (ses_event("Subscription", OPT_OUT), EventType.UNSUBSCRIBED, "10:10:00"),
    ],
)
def test_every_kind_of_notification_has_its_event(
    body: dict[str, Any], type_: EventType, time: str
) -> None:
    found = event(body)
    assert found.type is type_
    assert found.time == datetime.fromisoformat(f"2026-01-15T{time}+00:00")
    assert found.recipient_key == key()
    assert found.provider_message_id == "0107-example-000000"
    assert decode(encode(found)) == found


def test_both_shapes_of_a_fact_are_one_event() -> None:
    body = ses_event("Bounce", bounce(), tags={"attempt": [ATTEMPT]})
    identity_shape = ses_event("Bounce", bounce(timestamp="2026-01-15T11:00:05 +0100"))
    identity_shape["notificationType"] = identity_shape.pop("eventType")
    assert event(body).id == event(identity_shape).id


@pytest.mark.parametrize(
    "other",
    [
        ses_event("Bounce", bounce(feedbackId="another")),
        ses_event("Bounce", bounce(), messageId="another"),
        ses_event("Bounce", bounce(), destination=["user2@example.com"]),
        ses_event("Delivery", delivery()),
    ],
)
def test_another_fact_is_another_event(other: dict[str, Any]) -> None:
    assert event(other).id != event(ses_event("Bounce", bounce())).id


def test_clicks_on_two_links_in_one_millisecond_are_two_events() -> None:
    other = {**CLICK, "link": "https://example.com/b"}
    assert event(ses_event("Click", CLICK)).id != event(ses_event("Click", other)).id
    assert event(ses_event("Click", CLICK)).id == event(ses_event("Click", dict(CLICK))).id


def test_a_send_that_is_told_twice_is_one_event() -> None:
    late = ses_event("Send", {"new": 1}, timestamp="2026-01-15T10:00:00.001Z")
    assert event(late).id == event(ses_event("Send", {})).id


def test_tags_tell_the_attempt_the_row_and_the_tenant() -> None:
    tags = {
        "ses:configuration-set": ["mailstreams"],
        "attempt": [ATTEMPT],
        "outbox": [OUTBOX],
        "tenant": ["shop-1", "other"],
        "traceparent": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
    }
    found = notice(ses_event("Send", {}, tags=tags))
    assert found.traceparent == tags["traceparent"][0]
    assert found.events[0].attempt_id == UUID(ATTEMPT)
    assert found.events[0].outbox_id == UUID(OUTBOX)
    assert found.events[0].tenant == "shop-1"


@pytest.mark.parametrize(
    "tags",
    [
        None,
        [],
        "attempt",
        {"attempt": [], "outbox": [], "tenant": []},
        {"attempt": None, "outbox": 1, "tenant": {}},
        {"attempt": ["a"], "outbox": ["{" + OUTBOX + "}"], "tenant": ["a b"]},
        {"attempt": [["x"]], "outbox": [None], "tenant": ["x" * 65], "traceparent": ["00"]},
    ],
)
def test_tags_that_are_nonsense_are_ignored(tags: object) -> None:
    found = notice(ses_event("Send", {}, tags=tags))
    told = found.events[0]
    assert (told.attempt_id, told.outbox_id, told.tenant) == (None, None, None)
    assert found.traceparent is None


def test_a_bounce_tells_what_and_why() -> None:
    found = event(ses_event("Bounce", bounce()))
    assert found.bounce is not None
    assert found.bounce.type is BounceType.PERMANENT
    assert found.bounce.reason is BounceReason.MAILBOX_UNKNOWN
    assert found.bounce.provider_type == "Permanent"
    assert found.bounce.provider_subtype == "General"
    assert found.bounce.status == "5.1.1"
    assert found.bounce.diagnostic == "smtp; 550 5.1.1 user unknown"


def test_a_bounce_names_one_of_three_destinations() -> None:
    three = [f"user{n}@example.com" for n in (1, 2, 3)]
    body = ses_event("Bounce", bounce({"emailAddress": "USER2@example.com"}), destination=three)
    assert event(body).recipient_key == key("user2@example.com")


@pytest.mark.parametrize("kind", ["Send", "Complaint", "Open"])
def test_more_recipients_than_a_message_can_have_are_kept_raw(kind: str) -> None:
    """Events that each name all the others would be a gigabyte."""
    for count in (MAX_RECIPIENTS, MAX_RECIPIENTS + 1, 5000):
        everyone = [f"u{n}@example.com" for n in range(count)]
        detail = {"complainedRecipients": [{"emailAddress": a} for a in everyone]}
        found = notice(ses_event(kind, detail, destination=everyone))
        if count > MAX_RECIPIENTS:
            assert (found.kind, found.events) == (NoticeKind.UNREADABLE, ())
            assert found.keep_raw == "more recipients than a message can have"
        else:
            assert len(found.events) == count


def test_recipients_of_one_bounce_may_say_different_things() -> None:
    body = ses_event(
        "Bounce",
        bounce(
            {"emailAddress": "user1@example.com", "status": "5.1.1", "diagnosticCode": "550"},
            {"emailAddress": "user2@example.com", "status": "4.0.0"},
        ),
        destination=["user1@example.com", "user2@example.com"],
    )
    found = {e.recipient_key: e.bounce for e in events(body)}
    assert found.keys() == {key(), key("user2@example.com")}
    second = found[key("user2@example.com")]
    assert second is not None
    assert (second.type, second.diagnostic) == (BounceType.TRANSIENT, None)


def test_the_one_destination_counts_not_the_address_that_the_report_names() -> None:
    forwarded = bounce({"emailAddress": "elsewhere@example.net", "status": "5.1.1"})
    assert event(ses_event("Bounce", forwarded)).recipient_key == key()


@pytest.mark.parametrize("named", [[], None, [{}], [{"emailAddress": 1}], [None], ["?"], "?"])
def test_one_destination_is_enough_to_tell_the_recipient(named: object) -> None:
    body = ses_event("Bounce", bounce(bouncedRecipients=named))
    assert event(body).recipient_key == key()


@pytest.mark.parametrize("named", [[], None, [{}], [{"emailAddress": "?"}], [None], 7])
def test_a_recipient_is_never_guessed_among_several(named: object) -> None:
    two = ["user1@example.com", "user2@example.com"]
    found = notice(ses_event("Bounce", bounce(bouncedRecipients=named), destination=two))
    assert found.kind is NoticeKind.UNREADABLE
    assert found.keep_raw
    assert not found.events


def test_what_is_told_is_published_and_the_rest_is_kept_raw() -> None:
    body = ses_event(
        "Bounce",
        bounce({"emailAddress": "user1@example.com"}, {"emailAddress": "?"}),
        destination=["user1@example.com", "user2@example.com"],
    )
    found = notice(body)
    assert [e.recipient_key for e in found.events] == [key()]
    assert found.keep_raw


def test_two_entries_about_one_recipient_are_one_event_of_the_graver() -> None:
    soft = {"emailAddress": "a@example.net", "status": "4.2.2"}
    hard = {"emailAddress": "b@example.net", "status": "5.1.1"}
    for entries in ((soft, hard), (hard, soft)):
        found = event(ses_event("Bounce", bounce(*entries)))
        assert found.bounce is not None
        assert found.bounce.status == "5.1.1"


@pytest.mark.parametrize(
    ("sent_to", "named"),
    [
        ("user1@xn--exmple-cua.com", "user1@exämple.com"),
        ("user1@exämple.com", "USER1@XN--EXMPLE-CUA.COM"),
        ('"user1"@example.com', "user1@example.com"),
        ("user1@example.com", '"user1"@example.com'),
    ],
)
def test_a_recipient_is_recognised_in_another_spelling(sent_to: str, named: str) -> None:
    others = [sent_to, "user2@example.com"]
    body = ses_event("Bounce", bounce({"emailAddress": named}), destination=others)
    expected = sent_to.replace("exämple", "xn--exmple-cua")
    assert event(body).recipient_key == key(expected)


def test_a_reject_is_about_every_destination() -> None:
    two = ["user1@example.com", "user2@example.com"]
    found = events(ses_event("Reject", {"reason": "Bad content"}, destination=two))
    assert {e.recipient_key for e in found} == {key(a) for a in two}
    assert {e.type for e in found} == {EventType.REJECTED}


def test_a_complaint_names_all_who_may_have_complained() -> None:
    three = ["user1@example.com", "user2@example.com", "other@example.net"]
    named = complaint("user1@example.com", "user2@example.com")
    found = events(ses_event("Complaint", named, destination=three))
    assert {e.recipient_key for e in found} == {key(a) for a in three[:2]}
    for told in found:
        assert told.raw is not None
        assert told.raw["complaint"]["feedbackId"] == "0107-complaint-000000"
        assert told.raw["complaint"]["complainedRecipients"] == [
            {"emailAddress": key(a)} for a in three[:2]
        ]


@pytest.mark.parametrize(
    ("word", "expected"), [("abuse", "abuse"), ("new-word", "other"), (None, None)]
)
def test_a_complaint_has_a_type_of_a_closed_set(word: str | None, expected: str | None) -> None:
    found = event(ses_event("Complaint", complaint(complaintFeedbackType=word)))
    assert found.complaint is not None
    assert found.complaint.type == expected


def test_a_complaint_about_nothing_sent_is_a_refusal_by_the_provider() -> None:
    found = event(ses_event("Complaint", complaint(complaintSubType="OnAccountSuppressionList")))
    assert found.type is EventType.BOUNCED
    assert found.bounce is not None
    assert found.bounce.reason is BounceReason.SUPPRESSED_BY_PROVIDER
    assert found.complaint is None


@pytest.mark.parametrize(
    "preferences",
    [
        {},
        {"newTopicPreferences": {"unsubscribeAll": False}},
        {
            "newTopicPreferences": {
                "topicSubscriptionStatus": [{"topicName": "T", "subscriptionStatus": "OptIn"}]
            }
        },
        {
            f"{age}TopicPreferences": {
                "topicSubscriptionStatus": [{"topicName": "T", "subscriptionStatus": "OptOut"}]
            }
            for age in ("new", "old")
        },
    ],
)
def test_a_change_that_is_no_opt_out_is_ignored(preferences: dict[str, Any]) -> None:
    assert notice(ses_event("Subscription", preferences)) == Notice(kind=NoticeKind.IGNORED)


@pytest.mark.parametrize(
    "message",
    [
        "Successfully validated SNS topic for Amazon SES event publishing.",
        " Successfully validated SNS topic for Amazon SES event publishing.\n",
        '{"notificationType": "AmazonSnsSubscriptionSucceeded", "message": "You have ..."}',
    ],
)
def test_the_messages_of_a_set_up_are_no_events(message: str) -> None:
    assert notice(message) == Notice(kind=NoticeKind.SETUP)


def test_inbound_mail_is_no_event() -> None:
    body = {"notificationType": "Received", "mail": {"destination": ["inbox@example.com"]}}
    assert notice(body) == Notice(kind=NoticeKind.INBOUND)


@pytest.mark.parametrize(
    "message",
    ["", "hello", '{"eventType":"Bounce"', "[]", "null", "7", '"text"', "[" * 100_000, "{}x"],
)
def test_what_cannot_be_read_is_kept_raw(message: str) -> None:
    found = notice(message)
    assert found.kind is NoticeKind.UNREADABLE
    assert found.keep_raw


@pytest.mark.parametrize("body", [{}, {"eventType": "SomethingNew"}, {"eventType": 7}])
def test_an_unknown_type_is_kept_raw_and_publishes_nothing(body: dict[str, Any]) -> None:
    found = notice(body)
    assert (found.kind, found.events) == (NoticeKind.UNKNOWN_TYPE, ())
    assert found.keep_raw


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-01-15T10:00:02.000Z", "2026-01-15T10:00:02+00:00"),
        ("2026-01-15T10:00:02Z", "2026-01-15T10:00:02+00:00"),
        ("2026-01-15T10:00:02.123456789Z", "2026-01-15T10:00:02.123456+00:00"),
        ("2026-01-15T10:00:02 +0000", "2026-01-15T10:00:02+00:00"),
        ("2026-01-15T12:00:02+02:00", "2026-01-15T10:00:02+00:00"),
        ("2026-01-15 10:00:02", "2026-01-15T10:00:02+00:00"),
        ("Thu, 15 Jan 2026 10:00:02 GMT", "2026-01-15T10:00:02+00:00"),
        ("2026-01-15t10:00:02z", "2026-01-15T10:00:02+00:00"),
        ("2026-01-15 10:00:02 UTC", "2026-01-15T10:00:02+00:00"),
        ("2026-01-15T10:00:01.500+0000", "2026-01-15T10:00:01.5+00:00"),
        ("2026-01-15T09:59:60.250Z", "2026-01-15T10:00:00.25+00:00"),
        ("1768471202", "2026-01-15T10:00:02+00:00"),
        ("1768471202000", "2026-01-15T10:00:02+00:00"),
        (1768471202, "2026-01-15T10:00:02+00:00"),
        (1768471202000, "2026-01-15T10:00:02+00:00"),
        ("soon", "2026-01-15T10:00:00+00:00"),
        ("9999-12-31T23:59:59-23:59", "2026-01-15T10:00:00+00:00"),
        (None, "2026-01-15T10:00:00+00:00"),
        (True, "2026-01-15T10:00:00+00:00"),
        (10**400, "2026-01-15T10:00:00+00:00"),
        ([], "2026-01-15T10:00:00+00:00"),
    ],
)
def test_times_are_read_in_every_shape_or_taken_from_the_mail(written: object, read: str) -> None:
    found = event(ses_event("Delivery", delivery(timestamp=written)))
    assert found.time == datetime.fromisoformat(read).astimezone(UTC)


def test_a_fact_without_any_time_has_that_of_its_arrival_and_the_same_id() -> None:
    body = json.dumps(ses_event("Delivery", delivery(timestamp=None), timestamp=None))
    first = notice(body, received=NOW).events[0]
    later = notice(body, received=NOW.replace(hour=13)).events[0]
    assert first.time == NOW
    assert first.id == later.id


@pytest.mark.parametrize(
    ("ahead_min", "own"), [(59, True), (61, False)], ids=["our clock is slow", "nonsense"]
)
def test_a_time_to_come_is_not_believed(ahead_min: int, own: bool) -> None:
    told = NOW + timedelta(minutes=ahead_min)
    body = json.dumps(ses_event("Delivery", delivery(timestamp=told.isoformat()), timestamp=None))
    first = notice(body, received=NOW).events[0]
    assert first.time == (told if own else NOW)
    assert first.id == notice(body, received=NOW + timedelta(days=1)).events[0].id


def test_a_bounce_without_mail_object_still_tells_its_recipient() -> None:
    body = {"notificationType": "Bounce", "bounce": bounce()}
    found = event(body)
    assert found.recipient_key == key()
    assert found.provider_message_id is None


def test_a_fact_that_nothing_tells_from_others_is_kept_raw() -> None:
    body = ses_event("Delivery", delivery(timestamp=None), timestamp=None, messageId=None)
    assert notice(body).kind is NoticeKind.UNREADABLE


def test_nothing_published_holds_an_address_or_content() -> None:
    body = ses_event(
        "Bounce",
        bounce(
            {
                "emailAddress": "User One <user1@example.com>",
                "status": "5.1.1",
                "diagnosticCode": "smtp; 550 <user1@example.com> to other@example.net\x00\ud800",
            }
        ),
        headers=[{"name": "Subject", "value": "Secret"}],
        commonHeaders={"subject": "Secret", "to": ["user1@example.com"]},
        tags={"campaign": ["user1@example.com"]},
    )
    value = encode(event(body)).decode()
    assert "@" not in value
    assert "Secret" not in value
    assert "User One" not in value
    assert "\\u0000" not in value


def test_each_event_carries_the_entry_of_its_own_recipient() -> None:
    two = ["user1@example.com", "user2@example.com"]
    entries = [{"emailAddress": a, "status": "5.1.1", "diagnosticCode": a} for a in two]
    found = events(ses_event("Bounce", bounce(*entries), destination=two))
    for told, address in zip(found, two, strict=True):
        assert told.raw is not None
        (entry,) = told.raw["bounce"]["bouncedRecipients"]
        assert entry == {
            "emailAddress": key(address),
            "status": "5.1.1",
            "diagnosticCode": key(address),
        }


def test_mail_to_the_mailbox_simulator_is_marked() -> None:
    simulator = ses_event("Bounce", bounce(), destination=["bounce+1@simulator.amazonses.com"])
    marked, plain = event(simulator).raw, event(ses_event("Bounce", bounce())).raw
    assert marked is not None
    assert plain is not None
    assert marked["mailbox_simulator"] is True
    assert "mailbox_simulator" not in plain
