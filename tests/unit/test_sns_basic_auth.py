"""Basic authentication of the endpoint, and raw delivery, which has nothing else to prove it."""

import base64
import json

import pytest

from streams.domain.basic_auth import is_authorized, parse_credentials
from streams.domain.errors import Misconfigured
from streams.domain.sns import Reason
from streams.events import EventsSettings
from streams.runtime.settings import Settings, load
from tests.events_rig import Publisher, Rig, Unreadable
from tests.sns_signing import NOW, TOPIC, delivery, ses_event

DELIVERY = ses_event("Delivery", delivery())


def basic(pair: str, scheme: str = "Basic") -> str:
    return f"{scheme} {base64.b64encode(pair.encode()).decode()}"


@pytest.mark.parametrize(
    "header", [basic("sns:secret"), basic("sns:secret", "basic"), basic("new:pässword:1")]
)
def test_any_of_the_pairs_opens(header: str) -> None:
    assert is_authorized(header, ("sns:secret", "new:pässword:1"))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic ",
        "Basic sns:secret",
        "Basic \udcff",
        basic("sns:wrong"),
        basic("sns"),
        basic("sns:secret "),
        basic("SNS:secret"),
        basic("sns:secret", "Bearer"),
        basic("sns:secret") + "!",
        basic(""),
    ],
)
def test_nothing_else_opens(header: str | None) -> None:
    assert not is_authorized(header, ("sns:secret",))


@pytest.mark.parametrize("setting", ["sns", ":secret", "sns:", "sns:a b", "sns:secret,nonsense"])
def test_credentials_that_cannot_work_are_refused_and_not_quoted(setting: str) -> None:
    with pytest.raises(Misconfigured, match="MAILSTREAMS_EVENTS_BASIC_AUTH") as raised:
        parse_credentials(setting)
    assert setting not in str(raised.value)


def test_several_credentials_are_separated_by_commas() -> None:
    settings = Settings.model_validate({"events_basic_auth": "sns:old, sns:new:er,"})
    assert EventsSettings.of(settings).basic_auth == ("sns:old", "sns:new:er")
    assert "new:er" not in repr(settings)


def test_raw_delivery_needs_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAILSTREAMS_EVENTS_RAW_DELIVERY", "true")
    with pytest.raises(Misconfigured, match="events_basic_auth"):
        load()
    with pytest.raises(Misconfigured, match="MAILSTREAMS_EVENTS_BASIC_AUTH"):
        EventsSettings(raw_delivery=True)
    monkeypatch.setenv("MAILSTREAMS_EVENTS_BASIC_AUTH", "sns:secret")
    assert EventsSettings.of(load()).raw_delivery


async def raw(rig: Rig, body: bytes, topic: str = TOPIC, message_id: str = "id") -> Reason:
    verdict = await rig.intake().receive_raw(body, topic=topic, message_id=message_id, now=NOW)
    assert verdict.message_id is None or "@" not in verdict.message_id
    return verdict.reason


async def test_a_raw_event_of_an_allowed_topic_is_published() -> None:
    rig = Rig()
    assert await raw(rig, json.dumps(DELIVERY).encode()) is Reason.ACCEPTED
    assert len(rig.publisher.records) == 1
    assert not rig.certificates.asked


@pytest.mark.parametrize("topic", ["", "arn:aws:sns:eu-central-1:999988887777:attacker"])
async def test_a_raw_event_of_another_topic_is_refused(topic: str) -> None:
    rig = Rig()
    assert await raw(rig, json.dumps(DELIVERY).encode(), topic) is Reason.UNKNOWN_TOPIC
    assert not rig.publisher.records


@pytest.mark.parametrize("body", [b"", b"hello", b"\xff\xfe", b"[]", b'{"eventType":"New"}'])
async def test_a_raw_message_that_cannot_be_read_is_kept(body: bytes) -> None:
    rig = Rig()
    assert await raw(rig, body, message_id="user1@example.com") is Reason.UNREADABLE
    ((record, _),) = rig.unreadable.kept
    assert record.value == body


async def test_a_raw_message_that_could_not_be_kept_comes_again() -> None:
    body = json.dumps(DELIVERY).encode()
    assert await raw(Rig(publisher=Publisher(down=True)), body) is Reason.PUBLISH_FAILED
    assert await raw(Rig(unreadable=Unreadable(down=True)), b"\xff") is Reason.PUBLISH_FAILED
