"""The public contract of mail.delivery-events: code, schemas and the released version say the same."""

import copy
import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from streams.domain.delivery_events import (
    CONTENT_TYPE,
    DATA_SCHEMA,
    TYPE_PREFIX,
    Bounce,
    BounceReason,
    BounceType,
    Complaint,
    DeliveryEvent,
    EventType,
    UnknownEvent,
    decode,
    encode,
    interpret,
)
from streams.domain.errors import BadMessage
from streams.domain.ses_events import NoticeKind, read_notice
from tests.contract.schema_changes import breaking_changes
from tests.contract.schema_files import RELEASED, SCHEMAS, current, faults, load, validator
from tests.sns_signing import NOW, SALT, bounce, complaint, delivery, ses_event

V1 = SCHEMAS / "delivery-events" / "v1.json"
EXAMPLES = sorted((SCHEMAS / "delivery-events" / "examples").glob("*.json"))
RELEASES = sorted(path for path in RELEASED.iterdir() if path.is_dir())
FOLDERS = sorted(path.parent for path in SCHEMAS.glob("*/v1.json"))
ENVELOPE = {"id", "type", "time", "source"}


def defined(name: str | None = None) -> Any:
    data = load(V1)["$defs"]["data"]
    return data if name is None else data["$defs"][name]


# Examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_each_example_is_valid_and_each_invalid_one_is_not(folder: Path) -> None:
    good = sorted((folder / "examples").glob("*.json"))
    bad = sorted((folder / "examples" / "invalid").glob("*.json"))
    assert good
    assert bad
    for path in good:
        assert faults(current(folder.name), load(path)) == [], path.name
    for path in bad:
        assert faults(current(folder.name), load(path)), f"{path.name} should be refused"


def test_there_is_an_example_of_every_type_bounce_and_source() -> None:
    bodies = [load(path) for path in EXAMPLES]
    assert {TYPE_PREFIX + kind for kind in EventType} <= {body["type"] for body in bodies}
    assert {body["source"] for body in bodies} == {"/mailstreams/ses", "/mailstreams/outbox"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_reads_as_an_event_that_is_written_the_same(path: Path) -> None:
    body = load(path)
    event = interpret(body)
    if isinstance(event, UnknownEvent):
        assert event.body == body
        assert path.stem.endswith("later-release")
        return
    again = json.loads(encode(event))
    assert datetime.fromisoformat(again.pop("time")) == event.time.replace(
        microsecond=event.time.microsecond // 1000 * 1000
    )
    if "later-release" not in path.stem:
        assert decode(path.read_bytes()) == event
        assert without_nulls(again) == without_nulls({k: v for k, v in body.items() if k != "time"})


def without_nulls(value: Any) -> Any:
    """Absent and null are the same; the provider's payload is left as it is."""
    if not isinstance(value, dict):
        return value
    return {k: v if k == "raw" else without_nulls(v) for k, v in value.items() if v is not None}


INVALID = SCHEMAS / "delivery-events" / "examples" / "invalid"
# The decoder takes what it can understand without doubt: more than the schema allows to be written.
TAKEN = {"address-as-key", "bounced-without-bounce", "life-cycle-without-tenant"}
TAKEN |= {"no-tenant-member", "other-specversion"}


@pytest.mark.parametrize("path", sorted(INVALID.glob("*.json")), ids=lambda p: p.stem)
def test_an_invalid_example_is_refused_without_a_word_of_its_values(path: Path) -> None:
    if path.stem in TAKEN:
        assert isinstance(interpret(load(path)), DeliveryEvent)
        return
    for read in (decode, lambda value: interpret(orjson.loads(value))):
        with pytest.raises(BadMessage, match="not a delivery event: ") as refused:
            read(path.read_bytes())
        assert "user1" not in str(refused.value)
        assert "4711" not in str(refused.value)


# Schema and code --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "elsewhere"),
    [(None, DeliveryEvent, ENVELOPE), ("bounce", Bounce, set()), ("complaint", Complaint, set())],
)
def test_the_schema_has_the_fields_of_the_dataclass_with_their_nullability(
    name: str | None, model: type, elsewhere: set[str]
) -> None:
    members = defined(name)["properties"]
    hints = typing.get_type_hints(model)
    fields = {f.name for f in dataclasses.fields(model)} - elsewhere
    assert members.keys() == fields
    for field in fields:
        allowed, nullable = members[field], types.NoneType in typing.get_args(hints[field])
        assert (null_allowed(allowed)) == nullable, field


def null_allowed(schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(null_allowed(part) for part in schema["anyOf"])
    kinds = schema.get("type", ())
    return kinds == "null" or "null" in kinds


@pytest.mark.parametrize(
    ("known", "words", "prefix"),
    [
        (load(V1)["properties"]["type"], EventType, TYPE_PREFIX),
        (defined("bounce")["properties"]["type"], BounceType, ""),
        (defined("bounce")["properties"]["reason"], BounceReason, ""),
    ],
)
def test_the_schema_has_the_words_of_the_code_and_is_open_for_new_ones(
    known: dict[str, Any], words: type[StrEnum], prefix: str
) -> None:
    listed, open_end = known["anyOf"]
    assert listed["enum"] == [prefix + word for word in words]
    assert "pattern" in open_end


def test_the_event_names_the_schema_of_its_data() -> None:
    schema = load(V1)
    assert schema["$defs"]["data"]["$id"] == DATA_SCHEMA
    assert schema["properties"]["data"]["$ref"] == DATA_SCHEMA
    assert CONTENT_TYPE == ("content-type", b"application/cloudevents+json; charset=UTF-8")


def test_required_attributes_of_cloudevents_1_0_are_required() -> None:
    assert {"specversion", "id", "source", "type"} <= set(load(V1)["required"])
    assert all(name.isalnum() and name.islower() for name in load(V1)["properties"])


TAGS = {
    "tenant": ["shop"],
    "outbox": [str(UUID(int=7, version=4))],
    "attempt": [str(UUID(int=8, version=4))],
    "ses:from-domain": ["example.com"],
}
NOTICES: dict[str, dict[str, Any]] = {
    "send": ses_event("Send", {}, tags=TAGS),
    "delivery": ses_event("Delivery", delivery()),
    "delivery of two": ses_event(
        "Delivery",
        delivery(recipients=["user1@example.com", "user2@example.com"]),
        destination=["user1@example.com", "user2@example.com"],
        tags=TAGS,
    ),
    "delay": ses_event(
        "DeliveryDelay",
        {"delayType": "SpamDetected", "delayedRecipients": [{"emailAddress": "user1@example.com"}]},
    ),
    "bounce": ses_event("Bounce", bounce(), tags=TAGS),
    "bounce without anything": ses_event("Bounce", {}),
    "bounce with nonsense": ses_event(
        "Bounce",
        bounce(
            {
                "emailAddress": "user1@example.com",
                "status": "9.9.9",
                "diagnosticCode": "\ud800 \x00",
            },
            bounceType="Odd",
            bounceSubType="Käse",
        ),
        tags={"tenant": ["sh op"], "outbox": ["17"], "ses:from-domain": ["-- no domain --"]},
        source="Käse <käse@bücher.example>",
    ),
    "complaint": ses_event("Complaint", complaint(), tags=TAGS),
    "complaint without type": ses_event("Complaint", complaint(complaintFeedbackType=None)),
    "complaint of a list": ses_event(
        "Complaint", complaint(complaintSubType="OnAccountSuppressionList")
    ),
    "reject": ses_event("Reject", {"reason": "Bad content"}, tags=TAGS),
    "rendering failure": ses_event("Rendering Failure", {"errorMessage": "x"}, tags=TAGS),
    "open": ses_event("Open", {"timestamp": "2026-01-15T11:00:00.000Z"}, tags=TAGS),
    "click": ses_event("Click", {"link": "https://example.com/?a=b"}, tags=TAGS),
    "subscription": ses_event("Subscription", {"newTopicPreferences": {"unsubscribeAll": True}}),
}


@pytest.mark.parametrize("name", NOTICES)
@pytest.mark.parametrize("release", [V1, *(path / "schema.json" for path in RELEASES)], ids=str)
def test_what_the_intake_writes_is_valid_in_every_release(name: str, release: Path) -> None:
    notice = read_notice(json.dumps(NOTICES[name]), salt=SALT, received=NOW)
    assert notice.kind is NoticeKind.EVENTS
    assert notice.events
    for event in notice.events:
        assert faults(validator(release), json.loads(encode(event))) == []


def test_the_notices_above_cover_every_type_that_a_provider_tells() -> None:
    told = {
        event.type
        for notice in NOTICES.values()
        for event in read_notice(json.dumps(notice), salt=SALT, received=NOW).events
    }
    assert told == {kind for kind in EventType if not kind.is_life_cycle}


# The released version ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES, ids=lambda p: p.name)
def test_a_released_version_is_frozen(release: Path) -> None:
    sums = [line.split("  ") for line in (release / "SHA256SUMS").read_text().splitlines()]
    listed = {name: digest for digest, name in sums}
    found = {
        str(path.relative_to(release)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in release.rglob("*.json")
    }
    assert found == listed


@pytest.mark.parametrize("release", RELEASES, ids=lambda p: p.name)
def test_nothing_was_taken_from_a_released_version(release: Path) -> None:
    assert breaking_changes(load(release / "schema.json"), load(V1)) == []


MEANINGS = {
    "bounced": ("bounced", "permanent", "mailbox-unknown", None),
    "bounced-transient": ("bounced", "transient", "timeout", None),
    "complained": ("complained", None, None, "abuse"),
    "failed": ("failed", None, None, None),
}


@pytest.mark.parametrize(
    "path",
    [path for release in RELEASES for path in sorted(release.glob("examples/*.json"))],
    ids=lambda p: f"{p.parts[-3]}-{p.stem}",
)
def test_released_examples_are_valid_and_read_as_before(path: Path) -> None:
    """A topic holds 30 days of what older releases wrote."""
    body = load(path)
    assert faults(current("delivery-events"), body) == []
    event, data = decode(path.read_bytes()), body["data"]
    assert (event.id, TYPE_PREFIX + event.type, event.source) == (
        body["id"],
        body["type"],
        body["source"],
    )
    assert event.time == datetime.fromisoformat(body["time"])
    for name in ("outbox_id", "attempt_id"):
        wanted = data.get(name)
        assert getattr(event, name) == (None if wanted is None else UUID(wanted))
    for name in (
        "recipient_key",
        "tenant",
        "provider_message_id",
        "sender_domain",
        "dedup_key",
        "reason",
        "raw",
    ):
        assert getattr(event, name) == data.get(name), name
    if path.stem in MEANINGS:
        assert MEANINGS[path.stem] == (
            str(event.type),
            event.bounce and str(event.bounce.type),
            event.bounce and str(event.bounce.reason),
            event.complaint and event.complaint.type,
        )


def data_of(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"]["data"]
    return found


Mutation = Callable[[dict[str, Any]], object]
BREAKING: dict[str, Mutation] = {
    "a field is removed": lambda s: data_of(s)["properties"].pop("sender_domain"),
    "a nested field is removed": lambda s: data_of(s)["$defs"]["bounce"]["properties"].pop(
        "status"
    ),
    "a field becomes required": lambda s: data_of(s)["required"].append("attempt_id"),
    "a field is not required any more": lambda s: data_of(s)["required"].remove("tenant"),
    "a word is removed": lambda s: s["properties"]["type"]["anyOf"][0]["enum"].remove(
        "mailstreams.email.opened"
    ),
    "a reason is renamed": lambda s: data_of(s)["$defs"]["bounce"]["properties"]["reason"]["anyOf"][
        0
    ]["enum"].__setitem__(0, "no-mailbox"),
    "an open list of words is closed": lambda s: s["properties"]["type"]["anyOf"].pop(),
    "a type changes": lambda s: data_of(s)["properties"]["outbox_id"].update(type="integer"),
    "a field is not nullable any more": lambda s: data_of(s)["properties"]["tenant"].update(
        type="string"
    ),
    "a field becomes nullable": lambda s: data_of(s)["properties"]["recipient_key"].update(
        type=["string", "null"]
    ),
    "a pattern changes": lambda s: data_of(s)["properties"]["recipient_key"].update(
        pattern="^[0-9a-f]{64}$"
    ),
    "new members are refused": lambda s: data_of(s).update(additionalProperties=False),
    "the major version changes": lambda s: s["properties"]["dataschema"].update(
        const="urn:mailstreams:delivery-event:v2"
    ),
    "a condition is added": lambda s: s["allOf"].append({"required": ["sequence"]}),
    "the length is limited": lambda s: s["properties"]["id"].update(maxLength=32),
}
HARMLESS: dict[str, Mutation] = {
    "a field is added": lambda s: data_of(s)["properties"].update(new={"type": "string"}),
    "a type is added": lambda s: s["properties"]["type"]["anyOf"][0]["enum"].append(
        "mailstreams.email.held"
    ),
    "a description changes": lambda s: s.update(description="Other words."),
}


@pytest.mark.parametrize("mutation", BREAKING)
def test_a_breaking_change_is_noticed(mutation: str) -> None:
    changed = copy.deepcopy(load(V1))
    BREAKING[mutation](changed)
    assert changed != load(V1)
    assert breaking_changes(load(RELEASES[0] / "schema.json"), changed)


@pytest.mark.parametrize("mutation", HARMLESS)
def test_an_addition_is_no_breaking_change(mutation: str) -> None:
    changed = copy.deepcopy(load(V1))
    HARMLESS[mutation](changed)
    assert changed != load(V1)
    assert breaking_changes(load(RELEASES[0] / "schema.json"), changed) == []
