"""Messages with chosen defects: each is wrong in one way and genuine in every other."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from streams.simulator.server import Simulator
from tests.simulator_rig import (
    TOPIC_ARN,
    Control,
    Endpoint,
    Received,
    endpoint,
    quick_settings,
    signature_is_valid,
    until,
)

RECORD = {"eventType": "Delivery", "mail": {"messageId": "m-1"}, "delivery": {}}
HOST = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A confirmed subscriber that gets what `publish` asks for."""

    control: Control
    subscriber: Endpoint
    certificate: bytes

    async def publish(self, **fields: Any) -> Received:
        given = fields if "message" in fields else {"record": RECORD} | fields
        await self.control.post("publish", **given)
        return self.subscriber.received[-1]

    def is_valid(self, envelope: dict[str, Any]) -> bool:
        return signature_is_valid(envelope, self.certificate)


@asynccontextmanager
async def running() -> AsyncIterator[Scene]:
    async with (
        endpoint() as subscriber,
        Simulator(quick_settings(subscribe=(subscriber.url,))) as simulator,
        aiohttp.ClientSession() as session,
    ):
        subscriber.simulator_url = simulator.url
        await until(lambda: len(subscriber.received) >= 2)
        path = urlsplit(subscriber.received[0].envelope["SigningCertURL"]).path
        async with session.get(simulator.url + path) as response:
            certificate = await response.read()
        control = Control(session, simulator.url)
        yield Scene(control=control, subscriber=subscriber, certificate=certificate)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with running() as it:
        yield it


async def test_without_a_defect_it_is_genuine(scene: Scene) -> None:
    received = await scene.publish()
    assert scene.is_valid(received.envelope)
    assert received.record == RECORD
    assert received.headers["x-amz-sns-topic-arn"] == TOPIC_ARN
    assert received.headers["x-amz-sns-message-id"] == received.envelope["MessageId"]
    assert received.envelope["SigningCertURL"].startswith(HOST)


@pytest.mark.parametrize("defect", ["bad-signature", "foreign-key"])
async def test_a_signature_can_be_wrong(scene: Scene, defect: str) -> None:
    envelope = (await scene.publish(defects=[defect])).envelope
    assert len(base64.b64decode(envelope["Signature"])) >= 128
    assert not scene.is_valid(envelope)


@pytest.mark.parametrize(
    ("defect", "label", "honest"), [("version-2-label", "2", "1"), ("version-1-label", "1", "2")]
)
async def test_a_label_can_name_the_other_version(
    scene: Scene, defect: str, label: str, honest: str
) -> None:
    envelope = (await scene.publish(defects=[defect])).envelope
    assert envelope["SignatureVersion"] == label
    assert not scene.is_valid(envelope)
    assert scene.is_valid(envelope | {"SignatureVersion": honest})


async def test_a_stranger_s_topic_is_rightly_signed(scene: Scene) -> None:
    received = await scene.publish(defects=["foreign-topic"])
    assert received.envelope["TopicArn"] != TOPIC_ARN
    assert received.headers["x-amz-sns-topic-arn"] == received.envelope["TopicArn"]
    assert scene.is_valid(received.envelope)


@pytest.mark.parametrize(
    ("defect", "host"),
    [
        ("foreign-certificate-host", "sns.eu-central-1.amazonaws.com.example.com"),
        ("foreign-region", "sns.us-west-2.amazonaws.com"),
    ],
)
async def test_the_certificate_can_be_said_to_be_elsewhere(
    scene: Scene, defect: str, host: str
) -> None:
    envelope = (await scene.publish(defects=[defect])).envelope
    assert urlsplit(envelope["SigningCertURL"]).hostname == host
    assert scene.is_valid(envelope)


async def test_a_message_can_be_stale_and_rightly_signed(scene: Scene) -> None:
    envelope = (await scene.publish(defects=["stale"])).envelope
    age = datetime.now(UTC) - datetime.fromisoformat(envelope["Timestamp"])
    assert timedelta(hours=47) < age < timedelta(hours=49)
    assert scene.is_valid(envelope)


async def test_a_message_can_be_unsigned(scene: Scene) -> None:
    envelope = (await scene.publish(defects=["unsigned"])).envelope
    assert not {"Signature", "SignatureVersion", "SigningCertURL"} & set(envelope)


async def test_members_can_be_changed_before_and_after_signing(scene: Scene) -> None:
    signed = (await scene.publish(fields={"MessageId": "id-1"})).envelope
    assert signed["MessageId"] == "id-1"
    assert scene.is_valid(signed)
    tampered = (await scene.publish(envelope={"Message": "other"}, omit=["Subject"])).envelope
    assert tampered["Message"] == "other"
    assert "Subject" not in tampered
    assert not scene.is_valid(tampered)


async def test_confirmations_can_be_made_up(scene: Scene) -> None:
    received = await scene.publish(type="UnsubscribeConfirmation", message="Gone.")
    assert received.kind == "UnsubscribeConfirmation"
    assert received.envelope["SubscribeURL"].startswith("https://sns.eu-central-1.amazonaws.com/?")
    assert scene.is_valid(received.envelope)


async def test_headers_and_the_whole_body_can_be_replaced(scene: Scene) -> None:
    received = await scene.publish(body="not json", headers={"x-amz-sns-message-id": "other"})
    assert received.text == "not json"
    assert received.headers["x-amz-sns-message-id"] == "other"


async def test_what_each_endpoint_answered_is_told(scene: Scene) -> None:
    scene.subscriber.status_of = lambda _received, _n: 403
    told = await scene.control.post("publish", record=RECORD)
    assert told["deliveries"] == [{"endpoint": scene.subscriber.url, "status": 403, "error": None}]
    nobody = "http://127.0.0.1:1/sns"
    told = await scene.control.post("publish", record=RECORD, endpoint=nobody)
    assert told["deliveries"] == [
        {"endpoint": nobody, "status": None, "error": "ClientConnectorError"}
    ]
    assert (await scene.control.quiet())["events"]["dead"] == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "The message needs either 'message', a string, or 'record'."),
        ({"message": "x", "defects": ["rust"]}, "Field 'defects' must hold some of bad-signature,"),
        ({"message": "x", "topic": "gone"}, "Field 'topic' must name a topic that exists."),
        ({"message": "x", "fields": {"Token": 1}}, "Fields 'fields' and 'headers' must hold "),
        ({"message": "x", "whim": 1}, "Unknown field 'whim'; known fields: "),
    ],
)
async def test_what_cannot_be_published_is_refused(
    scene: Scene, fields: dict[str, Any], message: str
) -> None:
    assert (await scene.control.refusal("publish", **fields)).startswith(message)
