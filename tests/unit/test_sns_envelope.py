"""The envelope of SNS: what is refused, what is signed, what is genuine."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes

from streams.domain.sns import (
    Envelope,
    EnvelopeType,
    Reason,
    Refusal,
    TopicArn,
    is_genuine,
    read_envelope,
    string_to_sign,
)
from streams.domain.wire_json import is_swollen
from tests.sns_signing import confirmation, notification, signed, signing_key


def reason(body: bytes, *, raw_delivery: bool = False) -> Reason | None:
    read = read_envelope(body, raw_delivery=raw_delivery)
    return read.reason if isinstance(read, Refusal) else None


def opened(body: bytes) -> Envelope:
    read = read_envelope(body)
    assert isinstance(read, Envelope)
    return read


def genuine(body: bytes, key: str = "trusted") -> bool:
    return is_genuine(opened(body), signing_key(key).public_key())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"a",
        b"null",
        b"[]",
        b"1",
        b'"text"',
        b"{}",
        b"{",
        b"\xff\xfe\xfd",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"Type": null}',
        b'{"Type": 1}',
        b'{"Type": ["Notification"]}',
    ],
)
def test_what_is_no_envelope_is_malformed(body: bytes) -> None:
    assert reason(body) is Reason.MALFORMED


@pytest.mark.parametrize(
    "inside",
    [
        '"New": [' + "[]," * 400_000 + "[]]",
        '"New": [' + "{}," * 400_000 + "{}]",
        '"New": [' + "1e5," * 300_000 + "1]",
        ",".join(f'"{n}":1' for n in range(100_000)),
        '"New": [' + '"\\"[",' * 200_000 + '""]',
    ],
)
def test_a_body_of_very_many_values_is_not_even_parsed(
    inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.domain.sns.loads", pytest.fail)
    text = signed(notification()).decode()
    assert reason(f"{text[:-1]}, {inside}}}".encode()) is Reason.MALFORMED


@pytest.mark.parametrize("sign", ["[", "{", ",", '"', "\\", '\\"', '",[', "\n,"])
def test_a_message_may_be_full_of_the_signs_of_json(sign: str) -> None:
    message = sign * (100_000 // len(sign))
    assert opened(signed(notification(message))).message == message


@pytest.mark.parametrize("text", ['"' * 1_000_001, '"' + '\\"' * 700_000, "\\" * 1_400_000])
def test_looking_for_values_takes_no_time(text: str) -> None:
    """Every search is linear: a quadratic one would run into the test's time limit."""
    assert not is_swollen(text.encode())
    assert reason(text.encode() + b"[" * 5_000) is Reason.MALFORMED


@pytest.mark.parametrize("name", ["Message", "MessageId", "Timestamp", "TopicArn"])
@pytest.mark.parametrize("value", [None, 1, {}, []])
def test_a_signed_field_that_is_no_text_is_malformed(name: str, value: object) -> None:
    envelope = json.loads(signed(notification()))
    assert reason(json.dumps({**envelope, name: value}).encode()) is Reason.MALFORMED


@pytest.mark.parametrize("name", ["Token", "SubscribeURL"])
def test_a_confirmation_needs_the_fields_of_its_own(name: str) -> None:
    envelope = json.loads(signed(confirmation()))
    del envelope[name]
    assert reason(json.dumps(envelope).encode()) is Reason.MALFORMED


def test_a_signed_text_is_not_taken_apart_in_another_way() -> None:
    """Name and value stand on lines of their own, so that a part of Message could pass for the fields that follow it."""
    whole = json.loads(signed(notification("first\nMessageId\nsecond", MessageId="third")))
    cut = {**whole, "Message": "first", "MessageId": "second\nMessageId\nthird"}
    kind = EnvelopeType.NOTIFICATION
    assert string_to_sign(kind, cut) == string_to_sign(kind, whole)
    assert reason(json.dumps(cut).encode()) is Reason.MALFORMED
    subject = json.loads(signed(notification(MessageId="m", Subject="s")))
    moved = {**subject, "MessageId": "m\nSubject\ns"}
    del moved["Subject"]
    assert string_to_sign(kind, moved) == string_to_sign(kind, subject)
    assert reason(json.dumps(moved).encode()) is Reason.MALFORMED


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_a_confirmation_with_an_empty_token_is_malformed(token: str) -> None:
    assert reason(signed(confirmation(Token=token))) is Reason.MALFORMED


@pytest.mark.parametrize("name", ["Signature", "SigningCertURL", "SignatureVersion"])
def test_an_envelope_without_a_signature_field_is_unsigned(name: str) -> None:
    envelope = json.loads(signed(notification()))
    del envelope[name]
    assert reason(json.dumps(envelope).encode()) is Reason.UNSIGNED


def test_a_topic_of_the_fifo_kind_is_unsigned() -> None:
    assert reason(json.dumps({"Type": "Notification", "SequenceNumber": "1"}).encode()) is (
        Reason.UNSIGNED
    )


@pytest.mark.parametrize("version", ["3", "", "1.0", " 1"])
def test_an_unknown_signature_version_is_named(version: str) -> None:
    body = json.dumps({**json.loads(signed(notification())), "SignatureVersion": version}).encode()
    assert reason(body) is Reason.UNSUPPORTED_VERSION


def test_an_unknown_type_is_named() -> None:
    assert reason(b'{"Type": "SomethingNew"}') is Reason.UNSUPPORTED_TYPE


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (b'{"eventType": "Delivery", "mail": {}}', False),
        (b'{"notificationType": "Bounce"}', False),
        (b"Successfully validated SNS topic", True),
        (b"{}", True),
    ],
)
def test_raw_delivery_is_named_by_the_header_or_the_body(body: bytes, header: bool) -> None:
    read = read_envelope(body, raw_delivery=header)
    assert isinstance(read, Refusal)
    assert read.reason is Reason.RAW_DELIVERY
    assert "raw message delivery" in read.detail


@pytest.mark.parametrize("signature", ["*", "abc", "YQ==\n", "ü"])
def test_a_signature_that_is_not_base64_is_bad(signature: str) -> None:
    body = json.dumps({**json.loads(signed(notification())), "Signature": signature}).encode()
    assert reason(body) is Reason.BAD_SIGNATURE


def test_a_time_that_is_none_is_malformed() -> None:
    assert reason(signed(notification(Timestamp="yesterday"))) is Reason.MALFORMED


@pytest.mark.parametrize(
    ("arn", "partition", "region"),
    [
        ("arn:aws:sns:eu-central-1:111122223333:t", "aws", "eu-central-1"),
        ("arn:aws-cn:sns:cn-north-1:111122223333:t", "aws-cn", "cn-north-1"),
        ("arn:aws-us-gov:sns:us-gov-west-1:111122223333:t", "aws-us-gov", "us-gov-west-1"),
    ],
)
def test_topics_of_every_partition_are_read(arn: str, partition: str, region: str) -> None:
    assert TopicArn.parse(arn) == TopicArn(text=arn, partition=partition, region=region)


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "topic",
        "arn:aws:sns:eu-central-1:111122223333:t ",
        "arn:aws:sns:eu-central-1:111122223333:t\n",
        "arn:aws:sns:s3:111122223333:t",
        "arn:aws:sns:evil.example/:111122223333:t",
        "arn:aws:sns:eu-central-1:111122223333:t:80dbe635-2b4b-57fd-8013-031c439cebe3",
        "arn:aws:sqs:eu-central-1:111122223333:t",
        "ARN:AWS:SNS:EU-CENTRAL-1:111122223333:T",
    ],
)
def test_what_is_no_topic_is_an_unknown_topic(arn: str) -> None:
    assert TopicArn.parse(arn) is None
    assert reason(signed(notification(TopicArn=arn))) is Reason.UNKNOWN_TOPIC


def test_the_string_to_sign_of_a_notification_ends_with_a_newline() -> None:
    fields = {"Message": "m", "MessageId": "i", "Timestamp": "t", "TopicArn": "a", "Type": "T"}
    assert string_to_sign(EnvelopeType.NOTIFICATION, fields) == (
        "Message\nm\nMessageId\ni\nTimestamp\nt\nTopicArn\na\nType\nT\n"
    )


@pytest.mark.parametrize(
    ("subject", "line"), [("s", "Subject\ns\n"), ("", "Subject\n\n"), (None, ""), (1, "")]
)
def test_a_subject_is_signed_if_it_is_a_text(subject: object, line: str) -> None:
    fields: dict[str, Any] = {"Message": "m", "Subject": subject, "Type": "T"}
    assert string_to_sign(EnvelopeType.NOTIFICATION, fields) == f"Message\nm\n{line}Type\nT\n"


@pytest.mark.parametrize(
    "kind", [EnvelopeType.SUBSCRIPTION_CONFIRMATION, EnvelopeType.UNSUBSCRIBE_CONFIRMATION]
)
def test_confirmations_sign_token_and_url_and_no_subject(kind: EnvelopeType) -> None:
    fields = {"Message": "m", "SubscribeURL": "u", "Token": "k", "Subject": "s", "Type": "T"}
    assert string_to_sign(kind, fields) == "Message\nm\nSubscribeURL\nu\nToken\nk\nType\nT\n"


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("subject", [{}, {"Subject": ""}, {"Subject": None}, {"Subject": "für"}])
def test_what_the_key_signed_is_genuine(version: str, subject: dict[str, Any]) -> None:
    assert genuine(signed(notification(SignatureVersion=version, **subject)))


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
def test_confirmations_are_genuine_under_their_own_fields(kind: str) -> None:
    assert genuine(signed(confirmation(kind)))


@pytest.mark.parametrize(
    "text",
    ["", "a\nb\r\n c ", "\x00\x07", "Zoë", "日本", "\U0001f69a", "\ud800", "a\udfffb"],
)
def test_every_text_that_json_can_carry_is_verified(text: str) -> None:
    assert genuine(signed(notification(text)))


def test_the_hash_follows_the_version_that_is_claimed() -> None:
    claimed_2 = notification(SignatureVersion="2")
    assert not genuine(signed(claimed_2, algorithm=hashes.SHA1()))  # noqa: S303 version 1
    assert not genuine(signed(notification(), algorithm=hashes.SHA256()))


def test_a_signature_without_the_final_newline_is_not_genuine() -> None:
    assert not genuine(signed(notification(), final_newline=False))


def test_the_signature_of_another_key_is_not_genuine() -> None:
    assert not genuine(signed(notification(), key="attacker"))


@pytest.mark.parametrize("name", ["Message", "MessageId", "Subject", "Timestamp"])
def test_a_changed_field_is_not_genuine(name: str) -> None:
    envelope = json.loads(signed(notification(Subject="s")))
    envelope[name] = "2026-01-15T12:00:01.000Z"
    assert not genuine(json.dumps(envelope).encode())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_json_in_another_encoding_is_read(encoding: str) -> None:
    assert genuine(signed(notification("Jürgen")).decode().encode(encoding))


def test_unknown_fields_change_nothing() -> None:
    envelope = json.loads(signed(notification()))
    envelope |= {"MessageAttributes": {"a": {"Type": "String", "Value": "b"}}, "New": [1]}
    assert genuine(json.dumps(envelope).encode())


def test_temporary_trouble_of_ours_is_never_a_4xx() -> None:
    ours = {r for r in Reason if r.status == 503}
    assert ours == {
        Reason.CERTIFICATE_UNAVAILABLE,
        Reason.CONFIRMATION_FAILED,
        Reason.PUBLISH_FAILED,
        Reason.OVERLOADED,
    }
    assert {r.status for r in Reason} == {200, 400, 401, 403, 413, 503}
