"""Decisions of the accept API: keys, bodies, fields, problems."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from streams.domain.api_bodies import DEEPEST, digest, read_json, unwritable
from streams.domain.api_email import Allowed, PostedEmail, read_email
from streams.domain.api_keys import (
    RANDOM_BYTES,
    ApiKey,
    PresentedKey,
    may_send_from,
    new_key,
    read_key,
)
from streams.domain.api_problems import Kind, Refused
from streams.domain.attachments import Places

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ALLOWED = Allowed(senders=None, places=Places(("https://files.example.com/",)), now=NOW)
EMAIL = {"from": "a@example.com", "to": "b@example.com", "subject": "x", "text": "x"}
FILE = {
    "url": "https://files.example.com/a.pdf",
    "name": "a.pdf",
    "sha256": "0" * 64,
    "size": 10,
}


def places(**more: Any) -> set[str]:
    found = read_email(EMAIL | more, ALLOWED)
    return set() if isinstance(found, PostedEmail) else {fault.pointer for fault in found}


def test_a_key_is_known_by_its_text_and_nothing_else() -> None:
    made = new_key(os.urandom(RANDOM_BYTES), test=True)
    assert made.text.startswith("ms_test_")
    assert read_key(made.text) == PresentedKey(made.id, made.hash)
    for wrong in (
        "",
        made.text[:-1],
        made.text + "x",
        made.text.replace("test", "prod"),
        "ms_live__",
    ):
        assert read_key(wrong) is None
    # The same secret under another kind is another key.
    other = read_key(made.text.replace("test", "live"))
    assert other is not None
    assert other.hash != made.hash


@pytest.mark.parametrize(
    ("change", "is_good"),
    [
        ({}, True),
        ({"hash": b"x" * 32}, False),
        ({"revoked": NOW}, False),
        ({"expires": NOW}, False),
        ({"expires": NOW + timedelta(seconds=1)}, True),
    ],
)
def test_a_key_counts_until_it_is_over(change: dict[str, Any], is_good: bool) -> None:
    kept = ApiKey(
        id="k",
        tenant="t",
        test=False,
        scopes=frozenset(),
        hash=b"h" * 32,
        expires=None,
        revoked=None,
        senders=None,
    )
    key = replace(kept, **change)
    assert key.is_good(PresentedKey("k", b"h" * 32), now=NOW) is is_good


def test_a_sender_is_an_address_or_a_whole_domain() -> None:
    senders = ("example.com", "Ann@other.example")
    allowed = ("x@example.com", "X@EXAMPLE.com", "ann@other.example")
    refused = (
        "x@sub.example.com",
        "x@badexample.com",
        "bob@other.example",
        "x@example.com.evil.example",
    )
    assert all(may_send_from(senders, address) for address in allowed)
    assert not any(may_send_from(senders, address) for address in refused)
    assert may_send_from(None, "anybody@example.com")


def test_bodies_that_say_the_same_have_one_digest() -> None:
    one = digest({"a": 1, "b": [1, 2]}, route="emails")
    assert digest({"b": [1, 2], "a": 1}, route="emails") == one
    assert digest({"b": [2, 1], "a": 1}, route="emails") != one
    assert digest({"a": 1, "b": [1, 2]}, route="batch") != one


def test_nesting_is_bounded_exactly() -> None:
    def nested(depth: int) -> Any:
        return [] if depth == 1 else [nested(depth - 1)]

    assert unwritable(nested(DEEPEST)) is None
    assert "nested deeper" in str(unwritable(nested(DEEPEST + 1)))


@pytest.mark.parametrize("body", [b"", b" ", b"{", b"nope", b"\xff", b'"\\ud800"', b'["\\u0000"]', b"NaN"])  # fmt: skip
def test_what_is_no_json_that_can_be_kept_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        read_json(body)
    assert refusal.value.problem.kind is Kind.MALFORMED


@pytest.mark.parametrize(
    ("more", "faulty"),
    [
        ({}, set()),
        ({"to": ["b@exämple.com"]}, set()),
        ({"to": "Bob <b@example.com>"}, {"/to/0"}),
        ({"to": "bäb@example.com"}, {"/to/0"}),
        ({"to": "b@example"}, {"/to/0"}),
        ({"to": "b@ex\u200bample.com"}, {"/to/0"}),
        ({"from": "Bäb <b@example.com>"}, set()),
        ({"from": "x\r\nBcc: y@example.com <b@example.com>"}, {"/from"}),
        ({"cc": [f"n{n}@example.com" for n in range(25)], "bcc": [f"n{n}@example.com" for n in range(25)]}, {"/cc"}),
        ({"subject": "a\u0085b"}, {"/subject"}),
        ({"text": None}, {"/text"}),
        ({"template": "t"}, {"/subject", "/text"}),
        ({"variables": {"a": 1}}, {"/variables"}),
        ({"headers": {"Bcc": "x@example.com"}}, {"/headers"}),
        ({"headers": {"X-A": "a\r\nBcc: b"}}, {"/headers"}),
        ({"headers": [{"name": "X-A", "value": "1"}]}, set()),
        ({"tags": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}, {"/tags"}),
        ({"tags": {"tenant": "other"}}, {"/tags"}),
        ({"send_after": "2027-01-01T00:00:00+02:00"}, set()),
        ({"send_after": "2027-01-01T00:00:00"}, {"/send_after"}),
        ({"send_after": 1_800_000_000}, {"/send_after"}),
        ({"send_after": "2027-02-30T00:00:00Z"}, {"/send_after"}),
        ({"send_after": "0001-01-01T00:00:00+14:00"}, {"/send_after"}),
        ({"send_after": "2027-01-01T00:00:00Z", "scheduled_at": "2027-01-01T00:00:00Z"}, {"/scheduled_at"}),
        ({"expires_at": "2026-11-30T00:00:00Z"}, {"/expires_at"}),
        ({"send_after": "2027-01-02T00:00:00Z", "expires_at": "2027-01-01T00:00:00Z"}, {"/expires_at"}),
        ({"attachments": [FILE]}, set()),
        ({"attachments": [FILE | {"url": "https://other.example/a.pdf"}]}, {"/attachments/0/url"}),
        ({"attachments": [FILE | {"name": "a.exe"}]}, {"/attachments/0/name"}),
        ({"attachments": [FILE | {"name": "../a.pdf"}]}, {"/attachments/0/name"}),
        ({"attachments": [FILE | {"size": 29_000_000}] * 2}, {"/attachments"}),
        ({"state": "submitted"}, {"/state"}),
        ({"tenant": "other"}, {"/tenant"}),
        ({"a/b~c": 1}, {"/a~1b~0c"}),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_email_is_told_with_its_place(
    more: dict[str, Any], faulty: set[str]
) -> None:
    assert places(**more) == faulty


def test_faults_repeat_nothing_of_the_email() -> None:
    secret = "c0nfidential"
    wrong = dict.fromkeys(PostedEmail.model_json_schema()["properties"], f"{secret}\n")
    found = read_email(
        wrong | {"headers": {"X-A": f"{secret}\n"}, "tags": {"a": f" {secret}"}}, ALLOWED
    )
    assert isinstance(found, list)
    assert len(found) > 10
    assert secret not in str(found)


def test_a_row_has_the_columns_that_the_email_has() -> None:
    email = read_email(
        EMAIL
        | {
            "from": "Shop <a@exämple.com>",
            "scheduled_at": "2027-01-01T00:00:00Z",
            "dedup_key": "d",
        },
        ALLOWED,
    )
    assert isinstance(email, PostedEmail)
    row = email.row(UUID(int=1), salt=b"0" * 32, test=True, traceparent=None)
    assert (row["sender"], row["sender_name"]) == ("a@xn--exmple-cua.com", "Shop")
    assert row["dedup_key"] == "test:d"
    assert row["send_after"] == datetime(2027, 1, 1, tzinfo=UTC)
    assert not {"cc", "html", "traceparent", "expires_at"} & row.keys()
