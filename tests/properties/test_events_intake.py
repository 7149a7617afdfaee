"""Whatever somebody posts or SES says: an answer of the closed set, and never an address in what is published."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.domain.addresses import recipient_key
from streams.domain.delivery_events import decode, encode
from streams.domain.mailboxes import bare_address
from streams.domain.redaction import Redactor
from streams.domain.ses_events import NoticeKind, read_notice
from streams.domain.sns import Reason
from tests.events_rig import Rig
from tests.sns_signing import (
    NOW,
    SALT,
    bounce,
    complaint,
    delivery,
    notification,
    ses_event,
    signed,
)

TEXTS = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    [
        "user1@example.com",
        "",
        "\ud800",
        "\x00",
        "2026-01-15T10:00:00.000Z",
        "https://example.com/?a=b",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
SES_NAMES = st.sampled_from(
    ["eventType", "notificationType", "mail", "bounce", "destination", "messageId", "tags", "link"]
)
DETAIL_NAMES = st.sampled_from(
    [
        "bouncedRecipients",
        "emailAddress",
        "status",
        "headers",
        "feedbackId",
        "recipients",
        "timestamp",
    ]
)
SNS_NAMES = st.sampled_from(
    ["Type", "Message", "MessageId", "TopicArn", "Timestamp", "Signature", "SigningCertURL"]
)
NAMES = TEXTS | SES_NAMES | DETAIL_NAMES | SNS_NAMES
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=25,
)
KINDS = st.sampled_from(
    ["Send", "Delivery", "Bounce", "Complaint", "Reject", "DeliveryDelay", "Open", "Click"]
) | st.sampled_from(["Rendering Failure", "Subscription", "New"])
GENUINE = st.sampled_from(
    [
        ses_event("Send", {}, tags={"attempt": ["0190b2c4-0000-7000-8000-000000000001"]}),
        ses_event("Delivery", delivery()),
        ses_event("Bounce", bounce()),
        ses_event("Complaint", complaint()),
        ses_event("Open", {"timestamp": "2026-01-15T10:00:00.000Z"}),
    ]
)


def receive(body: bytes) -> tuple[Reason, Rig]:
    rig = Rig()
    return Reason(asyncio.run(rig.receive(body, now=NOW))), rig


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_answered_and_publishes_nothing(body: bytes) -> None:
    reason, rig = receive(body)
    assert reason.status in (400, 403)
    assert not rig.publisher.records
    assert not rig.certificates.asked


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_change_of_an_envelope_is_answered_without_5xx(changes: dict[str, Any]) -> None:
    envelope = json.loads(signed(notification(ses_event("Delivery", delivery()))))
    reason, rig = receive(json.dumps({**envelope, **changes}).encode())
    assert reason.status in (200, 400, 403)
    assert bool(rig.publisher.records or rig.unreadable.kept) <= (reason.status == 200)


@settings(max_examples=60)
@given(TEXTS | VALUES.map(json.dumps))
def test_any_genuine_message_is_published_kept_raw_or_known(message: str) -> None:
    reason, rig = receive(signed(notification(message)))
    assert reason in (Reason.ACCEPTED, Reason.UNREADABLE)
    assert bool(rig.unreadable.kept) == (reason is Reason.UNREADABLE)


@given(
    KINDS, st.dictionaries(NAMES, VALUES, max_size=6), st.dictionaries(NAMES, VALUES, max_size=6)
)
def test_any_record_of_ses_is_read(kind: str, detail: dict[str, Any], mail: dict[str, Any]) -> None:
    message = json.dumps(ses_event(kind, detail, **mail))
    found = read_notice(message, salt=SALT, received=NOW)
    again = read_notice(message, salt=SALT, received=NOW.replace(hour=13))
    assert [e.id for e in found.events] == [e.id for e in again.events]
    assert len({e.id for e in found.events}) == len(found.events)
    for event in found.events:
        value = encode(event)
        assert decode(value).id == event.id
        assert b"@" not in value
        assert b"\\u0000" not in value
        assert len(value) < 64 * 1024


@given(GENUINE, st.dictionaries(NAMES.map("x".__add__), VALUES, max_size=6))
def test_unknown_fields_never_matter(body: dict[str, Any], unknown: dict[str, Any]) -> None:
    def facts(record: dict[str, Any]) -> list[object]:
        found = read_notice(json.dumps(record), salt=SALT, received=NOW)
        assert found.kind is NoticeKind.EVENTS
        return [
            (e.id, e.type, e.time, e.recipient_key, e.attempt_id, e.bounce, e.complaint)
            for e in found.events
        ]

    detail = next(name for name in body if name not in ("eventType", "mail"))
    grown = {
        **unknown,
        **body,
        "mail": {**unknown, **body["mail"]},
        detail: {**unknown, **body[detail]},
    }
    assert facts(grown) == facts(body)


ATEXT = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-/=?^_`{|}~."
LOCALS = st.text(ATEXT, min_size=1, max_size=20)
DOMAINS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{2,6}){1,2}", fullmatch=True)
AROUND = st.text(" <>()[]:;,\"'\n\tabc", max_size=5)


@given(LOCALS, DOMAINS, AROUND, AROUND)
def test_no_address_survives_redaction(local: str, domain: str, before: str, after: str) -> None:
    address = f"{local}@{domain}"
    redactor = Redactor(SALT)
    text = redactor.text(f"{before} {address} {after}")
    assert "@" not in text
    assert domain not in text
    encoded = redactor.text(f"https://example.org/?u={quote(address, safe='')}&x=1")
    assert domain not in encoded


@given(LOCALS, DOMAINS)
def test_a_recipient_named_in_a_text_becomes_its_key(local: str, domain: str) -> None:
    address = f"{local}@{domain}"
    found = Redactor(SALT, [address]).text(f"550 <{address.upper()}> unknown")
    assert found == f"550 <{recipient_key(address, SALT)}> unknown"


@given(
    LOCALS.filter(lambda local: len(local) > 3),
    DOMAINS,
    st.sampled_from(["<{}>", " {} ", "'{}'", "{}:"]),
)
def test_a_mailbox_named_without_its_domain_does_not_survive(
    local: str, domain: str, form: str
) -> None:
    sentence = f"550 {form.format(local.upper())} has no mailbox"
    found = Redactor(SALT, [f"{local}@{domain}"]).prose(sentence)
    assert form.format(local.upper()) not in found


def without(record: Any, paths: set[tuple[str, ...]], at: tuple[str, ...] = ()) -> Any:
    """The record without the members at these paths."""
    if isinstance(record, dict):
        kept = {name: without(v, paths, (*at, name)) for name, v in record.items()}
        return {name: value for name, value in kept.items() if (*at, name) not in paths}
    return [without(member, paths, at) for member in record] if isinstance(record, list) else record


def members(record: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(record, list):
        return [path for member in record for path in members(member, at)]
    if not isinstance(record, dict):
        return []
    return [path for n, v in record.items() for path in ((*at, n), *members(v, (*at, n)))]


@given(GENUINE, st.data())
def test_missing_members_are_read_or_kept_raw(record: dict[str, Any], data: st.DataObject) -> None:
    missing = data.draw(st.sets(st.sampled_from(members(record))))
    reason, rig = receive(signed(notification(without(record, missing))))
    kept = {Reason.ACCEPTED: rig.publisher.records, Reason.UNREADABLE: rig.unreadable.kept}
    assert kept[reason]


@given(TEXTS.map("New".__add__), st.sampled_from(["eventType", "notificationType"]))
def test_an_unknown_type_is_kept_raw(word: str, name: str) -> None:
    record = {name: word, "mail": {"destination": ["user1@example.com"]}}
    reason, rig = receive(signed(notification(record)))
    assert reason is Reason.UNREADABLE
    assert len(rig.unreadable.kept) == 1
    assert not rig.publisher.records


@given(
    LOCALS, DOMAINS, st.sampled_from(["{}", "<{}>", "A B <{}>", '"A, B" <{}>', " {} ", "rfc822;{}"])
)
def test_every_spelling_leads_to_the_same_address(local: str, domain: str, form: str) -> None:
    address = f"{local}@{domain}"
    if local[0] == local[-1] == "'":
        return
    assert bare_address(form.format(address)) == bare_address(address) == address


@given(VALUES)
def test_what_is_redacted_can_be_written_and_has_a_bound(value: Any) -> None:
    payload = Redactor(SALT).value({"a": value})
    assert len(orjson.dumps(payload)) < 64 * 1024
