"""What is published of a provider's payload holds no address and no content, and has a bound."""

import json
from base64 import b64encode
from typing import Any

import orjson
import pytest

from streams.domain.addresses import recipient_key
from streams.domain.redaction import MAX_PAYLOAD, Redactor
from tests.sns_signing import SALT

USER = "user1@example.com"
KEY = recipient_key(USER, SALT)


def redactor() -> Redactor:
    return Redactor(SALT, [USER])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("smtp; 550 5.1.1 <user1@example.com>: unknown", f"smtp; 550 5.1.1 <{KEY}>: unknown"),
        ("to=USER1@Example.COM, stat=x", f"to={KEY}, stat=x"),
        ("user1@example.com.", f"{KEY}."),
        ("mailto:user1@example.com?subject=x", f"mailto:{KEY}?subject=x"),
        ("(user1@example.com)", f"({KEY})"),
        ("{user1@example.com}", f"{{{KEY}}}"),
        ("'user1@example.com'", f"'{KEY}'"),
        ("user1&#64;example.com", KEY),
        ("https://example.com/?e=user1%40example.com&x=1", f"https://example.com/?e={KEY}&x=1"),
        ("https://example.com/?e=user1%2540example.com#f", f"https://example.com/?e={KEY}#f"),
        ("https://example.com/?e=user1@example.com", f"https://example.com/?e={KEY}"),
        ("bounces+user1=example.com", f"bounces+{KEY}"),
        ("no address at 5 % of 3 & 4 = 7", "no address at 5 % of 3 & 4 = 7"),
    ],
)
def test_the_recipients_address_becomes_its_key(text: str, expected: str) -> None:
    assert redactor().text(text) == expected


@pytest.mark.parametrize(
    "address",
    [
        "other@example.net",
        "first.last+tag@sub.example.net",
        '"quoted part"@example.net',
        "jürgen@exämple.de",
        "o'brien&co@example.net",
        "a/b=c@example.net",
        "user@[192.0.2.1]",
        "other＠example.net",
        "user1=example.com@bounces.example.net",
        "someone@relay@example.net",
        "someone@@example.net",
    ],
)
@pytest.mark.parametrize("around", ["{}", "550 <{}> unknown", "x;{},y", '"{}"', "a {} b"])
def test_nothing_is_left_of_other_peoples_addresses(address: str, around: str) -> None:
    text = redactor().text(around.format(address))
    assert "@" not in text
    assert "example.net" not in text
    assert address.split("@", maxsplit=1)[0] not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("550 5.1.1 user1: Recipient unknown", f"550 5.1.1 {KEY}: Recipient unknown"),
        ("550 No such user here (USER1).", f"550 No such user here ({KEY})."),
        ("550 mailbox 'user1' is full.", f"550 mailbox '{KEY}' is full."),
        ("550 user1 user1", f"550 {KEY} {KEY}"),
        ("550 <user1@example.com> user1", f"550 <{KEY}> {KEY}"),
        (
            "550 user10, user1-x, a.user1, user1.b, x+user1",
            "550 user10, user1-x, a.user1, user1.b, x+user1",
        ),
        ("550 user unknown", "550 user unknown"),
    ],
)
def test_a_mailbox_named_without_its_domain_becomes_the_key(text: str, expected: str) -> None:
    assert redactor().prose(text) == expected
    for name in ("diagnosticCode", "smtpResponse", "errorMessage"):
        assert redactor().value({"a": [{name: text}]}) == {"a": [{name: expected}]}


def test_words_of_the_provider_stay_whoever_is_called_like_them() -> None:
    named = Redactor(SALT, ["permanent@example.com", "failed@example.com"])
    payload = {"bounceType": "Permanent", "inner": {"action": "failed"}}
    assert named.value(payload) == payload


@pytest.mark.parametrize("local", ["550", "5", "x"])
def test_a_reply_code_stays_a_reply_code(local: str) -> None:
    text = "550 5.1.1 x unknown"
    assert Redactor(SALT, [f"{local}@example.com"]).prose(text) == text


def test_an_address_that_is_cut_off_is_left_out() -> None:
    text = redactor().text("x " * 495 + "somebody@example.com")
    assert "somebody" not in text
    assert len(text) <= 1001


def test_control_characters_and_lone_surrogates_are_replaced() -> None:
    assert redactor().text("a\x00b\ud800c\x1b[31m\u202ed\r\n\te") == "a�b�c�[31m�d\r\n\te"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("https://example.com/a/b?token=SECRET&e=user1%40example.com#f", "https://example.com/a/b"),
        ("https://user:password@example.com/", "https://example.com/"),
        ("https://example.com/u/user1@example.com", "https://example.com/u/…"),
        ("https://example.com/reset/MQ/c8x-3fa9b7d1e0/", "https://example.com/reset/MQ/…/"),
        (
            "https://example.com/en/order-history/index.html",
            "https://example.com/en/order-history/index.html",
        ),
        (
            "https://example.com/unsubscribe/dXNlcjFAZXhhbXBsZS5jb20",
            "https://example.com/unsubscribe/…",
        ),
        ("https://example.com/users/user1/settings", "https://example.com/users/…/settings"),
        ("https://example.com/" + "a" * 40, "https://example.com/…"),
        ("mailto:user1@example.com", "mailto"),
        ("http://[bad", ""),
    ],
)
def test_a_link_keeps_host_and_words_of_the_path_alone(link: str, expected: str) -> None:
    """What is no word may be a token: a link to reset a password has it there."""
    assert redactor().value({"link": link}) == {"link": expected}


@pytest.mark.parametrize("field", ["userAgent", "diagnosticCode", "reportingMTA", "link", "status"])
@pytest.mark.parametrize(
    "written",
    [
        "{local}=40{domain}",
        "=?utf-8?Q?{local}=40{domain}?=",
        "{local}_40{domain}",
        "{local}#{domain}",
        "{local} at {domain}",
        "{local}(at){domain}",
        "{local} [AT] {domain}",
        "{local} @ {domain}",
        "{local}\\u0040{domain}",
        "{domain}!{local}",
        "SRS0=x=y={domain}={local}@fwd.example",
        "{local}%{domain}@relay.example",
        "{base64}",
        "id={base64}&x",
    ],
)
@pytest.mark.parametrize("address", [USER, "Jane.Doe+x@mail.example.net", "ann@example.org"])
def test_a_known_address_is_found_however_it_is_written(
    address: str, written: str, field: str
) -> None:
    local, _, domain = address.partition("@")
    base64 = b64encode(address.encode()).decode()
    text = written.format(local=local, domain=domain, base64=base64)
    if field == "link":
        text = f"https://links.example/x/{text}"
    found = json.dumps(Redactor(SALT, [address]).value({field: text}))
    assert base64.rstrip("=") not in found
    assert local.lower() not in found.lower() or domain not in found.lower()


def test_contents_and_openers_are_dropped_at_every_depth() -> None:
    content: dict[str, Any] = {
        "headers": [{"name": "Subject", "value": "Secret"}],
        "commonHeaders": {"subject": "Secret"},
        "Subject": "Secret",
        "ipAddress": "192.0.2.9",
        "userAgent": "UA",
    }
    payload = {**content, "inner": {**content, "list": [content]}}
    assert redactor().value(payload) == {
        "userAgent": "UA",
        "inner": {"userAgent": "UA", "list": [{"userAgent": "UA"}]},
    }


def test_a_field_of_addresses_is_keyed_whole() -> None:
    payload = {"emailAddress": "User One <user1@example.com>", "to": [" USER1@example.com"]}
    assert redactor().value(payload) == {"emailAddress": KEY, "to": [KEY]}


def test_addresses_in_names_of_fields_are_redacted() -> None:
    assert redactor().value({"tags": {USER: ["x"]}}) == {"tags": {KEY: ["x"]}}


@pytest.mark.parametrize(
    "payload",
    [
        {"a": ["x" * 5000] * 5000},
        {str(n): "y" * 900 for n in range(5000)},
        {"a": {"b": [[["z" * 999] * 60] * 60] * 60}},
        {"n" * 5000: "x"},
    ],
)
def test_the_size_has_a_bound(payload: dict[str, Any]) -> None:
    assert len(orjson.dumps(redactor().value(payload))) < MAX_PAYLOAD * 2


def test_any_depth_is_cut() -> None:
    deep: Any = USER
    for _ in range(400):
        deep = {"a": deep}
    assert USER not in json.dumps(redactor().value(deep))


@pytest.mark.parametrize("number", [2**200, -(2**64), float("inf"), float("nan")])
def test_numbers_that_json_cannot_carry_are_left_out(number: float) -> None:
    written = orjson.dumps(redactor().value({"a": number, "b": 1}))
    assert orjson.loads(written) == {"a": None, "b": 1}


@pytest.mark.parametrize("word", ["a", "@", "a@", "%25", "%40", '"', "=", "a=", "&#64;", "<"])
def test_hostile_texts_take_no_time(word: str) -> None:
    """Every search is linear: a quadratic one would run into the test's time limit."""
    for _ in range(200):
        redactor().text(word * (1000 // len(word)))
    assert "@" not in redactor().text(word * 100_000)
