"""Records have the shapes of event publishing."""

from typing import Any

import orjson
import pytest

from streams.simulator import event_records
from streams.simulator.configuration_sets import EventType
from streams.simulator.event_records import SendingAccount
from streams.simulator.outcomes import AUTO_REPLY, BOUNCE_SUBTYPES, Fate, Outcome
from streams.simulator.send_email import read_send_email
from tests.simulator_rig import simple_mail

ACCOUNT = SendingAccount(region="eu-central-1", account_id="111122223333", caller="test")
AT = 1_767_323_045.678


def mail(**changes: Any) -> dict[str, Any]:
    submission = read_send_email(orjson.dumps(simple_mail(**changes)), ["mailstreams"])
    return event_records.mail_object(
        submission, message_id="m-1", accepted_at=AT, source_ip="192.0.2.1", account=ACCOUNT
    )


def test_the_mail_object_carries_tags_as_lists_headers_and_common_headers() -> None:
    document = mail(
        FromEmailAddress="Shop <shop@example.com>",
        Destination={"ToAddresses": ["Ann <ann@example.com>", "bob@example.com"]},
    )
    assert document["timestamp"] == "2026-01-02T03:04:05.678Z"
    assert document["source"] == "shop@example.com"
    assert document["sourceArn"] == "arn:aws:ses:eu-central-1:111122223333:identity/example.com"
    assert document["destination"] == ["ann@example.com", "bob@example.com"]
    assert document["tags"]["attempt"] == ["att-1"]
    assert document["tags"]["ses:configuration-set"] == ["mailstreams"]
    assert document["tags"]["ses:source-ip"] == ["192.0.2.1"]
    assert {"name": "Subject", "value": "Your order"} in document["headers"]
    assert document["commonHeaders"]["from"] == ["Shop <shop@example.com>"]
    assert document["commonHeaders"]["to"] == ["Ann <ann@example.com>", "bob@example.com"]
    assert document["commonHeaders"]["messageId"] == "m-1"
    assert document["headersTruncated"] is False


def test_the_outgoing_address_is_known_only_after_send() -> None:
    sent = mail()
    later = event_records.after_send(sent)
    assert "ses:outgoing-ip" not in sent["tags"]
    assert later["tags"]["ses:outgoing-ip"] == ["192.0.2.10"]


def test_headers_are_cut_at_ten_kilobytes() -> None:
    headers = [{"Name": f"X-{n}", "Value": "v" * 870} for n in range(15)]
    content = simple_mail()["Content"]["Simple"] | {"Headers": headers}
    document = mail(Content={"Simple": content})
    assert document["headersTruncated"] is True
    assert len(orjson.dumps(document["headers"])) < 13_000


def test_a_bcc_recipient_is_in_the_destination_but_in_no_header() -> None:
    document = mail(
        Destination={"ToAddresses": ["ann@example.com"], "BccAddresses": ["eve@example.com"]}
    )
    assert "eve@example.com" in document["destination"]
    assert "eve" not in orjson.dumps([document["headers"], document["commonHeaders"]]).decode()


@pytest.mark.parametrize(
    ("event", "key"),
    [(EventType.SEND, "send"), (EventType.DELIVERY_DELAY, "deliveryDelay")],
)
def test_details_stand_under_the_name_of_the_event(event: EventType, key: str) -> None:
    record = orjson.loads(event_records.record_json(event, b'{"messageId":"m-1"}', {"a": 1}))
    assert record == {"eventType": event.value, "mail": {"messageId": "m-1"}, key: {"a": 1}}


@pytest.mark.parametrize(
    ("bounce_type", "subtype"),
    [(kind, subtype) for kind, subtypes in BOUNCE_SUBTYPES.items() for subtype in subtypes],
)
def test_every_bounce_has_a_status_and_a_diagnostic(bounce_type: str, subtype: str) -> None:
    outcome = Outcome(fate=Fate.BOUNCE, bounce_type=bounce_type, bounce_subtype=subtype)
    record = event_records.bounce(["ann@example.com"], outcome, at=AT, feedback_id="f-1")
    (recipient,) = record["bouncedRecipients"]
    assert (record["bounceType"], record["bounceSubType"]) == (bounce_type, subtype)
    assert recipient["emailAddress"] == "ann@example.com"
    assert recipient["status"].count(".") == 2
    assert recipient["diagnosticCode"]
    assert record["feedbackId"] == "f-1"


def test_an_automatic_reply_has_neither_status_nor_diagnostic() -> None:
    record = event_records.bounce(["ann@example.com"], AUTO_REPLY, at=AT, feedback_id="f-1")
    assert (record["bounceType"], record["bounceSubType"]) == ("Transient", "General")
    assert record["bouncedRecipients"] == [{"emailAddress": "ann@example.com"}]


def test_a_complaint_without_a_type_has_no_such_member() -> None:
    outcome = Outcome(fate=Fate.COMPLAINT, feedback_type=None)
    record = event_records.complaint(["ann@example.com"], outcome, at=AT, feedback_id="f-1")
    assert "complaintFeedbackType" not in record
    assert record["complaintSubType"] is None


def test_ids_look_like_those_of_ses() -> None:
    first, second = event_records.provider_id(AT), event_records.provider_id(AT)
    assert first != second
    assert len(first) == len("010701a22d7c14a3-560cd89f-c852-4445-9460-5d044b3eccf4-000000")
    assert first.startswith("0107")
    assert first.endswith("-000000")
