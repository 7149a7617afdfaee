"""What becomes of an envelope: nothing is believed or fetched before its turn, nothing is acknowledged before it is kept."""

import json
import logging
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

from streams.domain.addresses import recipient_key
from streams.domain.delivery_events import CONTENT_TYPE, EventType
from streams.domain.errors import BadMessage, Misconfigured, Unavailable
from streams.domain.sns import Reason, TopicArn
from streams.intake import IntakeSettings
from streams.runtime.settings import Settings
from tests.events_rig import Certificates, Confirmer, Publisher, Rig, Unreadable
from tests.sns_signing import (
    CERTIFICATE_URL,
    NOW,
    SALT,
    TOPIC,
    certificate,
    confirmation,
    delivery,
    notification,
    ses_event,
    signed,
    timestamp,
)

DELIVERY = ses_event("Delivery", delivery())
STRANGER = "arn:aws:sns:eu-central-1:999988887777:attacker"


async def test_a_genuine_event_is_published_under_its_recipients_key() -> None:
    rig = Rig()
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = ses_event("Delivery", delivery(), tags={"traceparent": [traceparent]})
    assert await rig.receive(signed(notification(body)), now=NOW) == "accepted"
    (record,) = rig.publisher.records
    assert record.topic == "mail.delivery-events"
    assert record.key == recipient_key("user1@example.com", SALT).encode()
    assert record.partition is None
    assert record.headers == (CONTENT_TYPE, ("traceparent", traceparent.encode()))
    assert [e.type for e in rig.publisher.events()] == [EventType.DELIVERED]


@pytest.mark.parametrize("topic", [STRANGER, TOPIC + "-2", TOPIC.replace("central", "west")])
async def test_nothing_is_fetched_for_the_topic_of_a_stranger(topic: str) -> None:
    rig = Rig()
    url = CERTIFICATE_URL.replace("eu-central-1", topic.split(":")[3])
    for envelope in (notification(DELIVERY), confirmation()):
        body = signed({**envelope, "TopicArn": topic, "SigningCertURL": url})
        assert await rig.receive(body, now=NOW) == "unknown-topic"
    assert not rig.certificates.asked
    assert not rig.confirmer.confirmed
    assert not rig.publisher.records


@pytest.mark.parametrize("topic", [STRANGER, "no ARN\n"])
async def test_what_an_unknown_topic_calls_itself_stands_apart_from_what_is_known(
    topic: str,
) -> None:
    body = signed(notification(DELIVERY, TopicArn=topic))
    for verdict in (
        await Rig().intake().receive(body, now=NOW),
        await Rig().intake().receive_raw(b"{}", topic=topic, message_id="1", now=NOW),
    ):
        assert verdict.reason is Reason.UNKNOWN_TOPIC
        assert (verdict.topic, verdict.claimed_topic) == (None, topic)


async def test_nothing_is_fetched_from_another_url() -> None:
    rig = Rig()
    body = signed(notification(SigningCertURL="https://evil.example/x.pem"), key="attacker")
    assert await rig.receive(body, now=NOW) == "bad-certificate-url"
    assert not rig.certificates.asked


async def test_version_1_can_be_switched_off() -> None:
    rig = Rig(signature_versions=("2",))
    assert await rig.receive(signed(notification(DELIVERY)), now=NOW) == "unsupported-version"
    version_2 = signed(notification(DELIVERY, SignatureVersion="2"))
    assert await rig.receive(version_2, now=NOW) == "accepted"


@pytest.mark.parametrize("envelope", [notification(DELIVERY), confirmation()])
async def test_a_forgery_causes_nothing(envelope: dict[str, object]) -> None:
    rig = Rig()
    assert await rig.receive(signed(envelope, key="attacker"), now=NOW) == "bad-signature"
    assert not rig.publisher.records
    assert not rig.confirmer.confirmed
    assert not rig.unreadable.kept


@pytest.mark.parametrize(
    ("certificates", "reason"),
    [
        (Certificates(failure=Unavailable("busy")), Reason.CERTIFICATE_UNAVAILABLE),
        (Certificates(failure=BadMessage("no RSA")), Reason.BAD_CERTIFICATE),
        (Certificates(pem=certificate(days=(-30, -1))), Reason.BAD_CERTIFICATE),
        (Certificates(pem=certificate(days=(1, 30))), Reason.BAD_CERTIFICATE),
    ],
)
async def test_the_certificate_decides_before_the_signature(
    certificates: Certificates, reason: Reason
) -> None:
    rig = Rig(certificates=certificates)
    assert await rig.receive(signed(notification(DELIVERY)), now=NOW) == reason
    assert not rig.publisher.records


@pytest.mark.parametrize(
    ("minutes", "reason"),
    [(0, "accepted"), (59, "accepted"), (74, "accepted"), (76, "stale"), (120, "stale")],
)
async def test_what_sns_may_still_repeat_is_accepted_and_older_is_stale(
    minutes: int, reason: str
) -> None:
    sent = timestamp(NOW - timedelta(minutes=minutes))
    assert await Rig().receive(signed(notification(DELIVERY, Timestamp=sent)), now=NOW) == reason


async def test_an_event_from_the_future_is_not_given_up() -> None:
    sent = timestamp(NOW + timedelta(hours=3))
    body = signed(notification(DELIVERY, Timestamp=sent))
    assert await Rig().receive(body, now=NOW) == "accepted"


async def test_a_redrive_has_no_age_limit() -> None:
    body = signed(notification(DELIVERY, Timestamp=timestamp(NOW - timedelta(days=13))))
    assert await Rig(max_age=None).receive(body, now=NOW) == "accepted"


@pytest.mark.parametrize(("hours", "reason"), [(47, "accepted"), (49, "stale")])
async def test_a_confirmation_is_of_no_use_once_its_token_has_expired(
    hours: int, reason: str
) -> None:
    rig = Rig(max_age=None)
    body = signed(confirmation(Timestamp=timestamp(NOW - timedelta(hours=hours))))
    assert await rig.receive(body, now=NOW) == reason
    assert len(rig.confirmer.confirmed) == (reason == "accepted")


async def test_a_byte_order_mark_hides_no_event() -> None:
    rig = Rig()
    message = "\ufeff" + json.dumps(DELIVERY)
    assert await rig.receive(signed(notification(message)), now=NOW) == "accepted"
    assert len(rig.publisher.records) == 1


async def test_what_kafka_did_not_acknowledge_is_not_accepted() -> None:
    rig = Rig(publisher=Publisher(down=True))
    assert await rig.receive(signed(notification(DELIVERY)), now=NOW) == "publish-failed"


async def test_a_confirmation_is_a_call_built_from_topic_and_token() -> None:
    rig = Rig()
    assert await rig.receive(signed(confirmation()), now=NOW) == "accepted"
    assert rig.confirmer.confirmed == [(TopicArn.parse(TOPIC), "TOKEN-0123456789")]


async def test_a_confirmation_that_failed_comes_again() -> None:
    rig = Rig(confirmer=Confirmer(down=True))
    assert await rig.receive(signed(confirmation()), now=NOW) == "confirmation-failed"


async def test_a_removed_subscription_is_told_and_not_renewed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    body = signed(confirmation("UnsubscribeConfirmation"))
    name = "mailstreams_events_unsubscribed_total"
    before = REGISTRY.get_sample_value(name) or 0.0
    assert await rig.receive(body, now=NOW) == "unsubscribed"
    assert REGISTRY.get_sample_value(name) == before + 1
    assert not rig.confirmer.confirmed
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert "TOKEN" not in caplog.text


@pytest.mark.parametrize("message", ["hello", '{"eventType":"Bounce"', '{"eventType":"New"}'])
async def test_what_cannot_be_read_is_kept_as_found(message: str) -> None:
    rig = Rig()
    body = signed(notification(message))
    assert await rig.receive(body, now=NOW) == "unreadable"
    ((record, _),) = rig.unreadable.kept
    assert (record.value, record.partition, record.offset) == (body, -1, -1)
    assert not rig.publisher.records


async def test_what_could_not_be_kept_comes_again() -> None:
    rig = Rig(unreadable=Unreadable(down=True))
    assert await rig.receive(signed(notification("hello")), now=NOW) == "publish-failed"


async def test_a_set_up_message_is_accepted_and_leaves_nothing() -> None:
    rig = Rig()
    sentence = "Successfully validated SNS topic for Amazon SES event publishing."
    assert await rig.receive(signed(notification(sentence)), now=NOW) == "accepted"
    assert not rig.publisher.records
    assert not rig.unreadable.kept


async def test_headers_of_the_request_do_not_matter_but_that_of_raw_delivery() -> None:
    body = json.dumps(DELIVERY).encode()
    assert await Rig().receive(body, now=NOW, raw_delivery=True) == "raw-delivery"
    assert await Rig().receive(body, now=NOW) == "raw-delivery"


SETTINGS = {"recipient_salt": SALT.decode(), "sns_topics": TOPIC}


def test_the_settings_are_those_of_the_process() -> None:
    made = IntakeSettings.of(Settings.model_validate(SETTINGS))
    assert made.topics == {TOPIC}
    assert made.signature_versions == {"1", "2"}
    assert made.max_age == timedelta(minutes=75)
    assert made.events_topic == "mail.delivery-events"


@pytest.mark.parametrize(
    ("changes", "variable"),
    [
        ({"sns_topics": ""}, "MAILSTREAMS_SNS_TOPICS"),
        ({"sns_topics": f"{TOPIC},ses-events"}, "MAILSTREAMS_SNS_TOPICS"),
        ({"sns_signature_versions": ""}, "MAILSTREAMS_SNS_SIGNATURE_VERSIONS"),
        ({"sns_signature_versions": "2,3"}, "MAILSTREAMS_SNS_SIGNATURE_VERSIONS"),
        ({"recipient_salt": "short"}, "MAILSTREAMS_RECIPIENT_SALT"),
    ],
)
def test_a_setting_that_cannot_work_is_named_at_start(
    changes: dict[str, str], variable: str
) -> None:
    with pytest.raises(Misconfigured, match=variable):
        IntakeSettings.of(Settings.model_validate(SETTINGS | changes))
