"""The request of SendEmail."""

import json
from dataclasses import replace
from email.header import decode_header, make_header
from email.utils import parseaddr
from typing import Any
from uuid import UUID

import pytest

from streams.domain.addresses import RecipientKey
from streams.domain.attempts import AttemptId, Email
from streams.domain.errors import BadMessage
from streams.domain.mail_content import LARGEST_BODY, own_content, send_email_body
from streams.domain.templates import Content
from streams.domain.topics import Lane

EMAIL = Email(
    id=UUID("01890a5d-ac96-774b-bcce-b302099a8057"),
    attempt_id=AttemptId(UUID("01890a5d-ac96-774b-bcce-b302099a8058")),
    attempt=1,
    tenant="shop",
    lane=Lane.TRANSACTIONAL,
    recipient="o'neil@example.com",
    recipient_key=RecipientKey("0" * 32),
    cc=(),
    bcc=(),
    left_out=(),
    sender="sender@example.com",
    reply_to=None,
    subject="Hello – 🚚",
    text="Hi",
    html=None,
    template=None,
    template_version=None,
    variables={},
    headers={},
    tags={},
    traceparent=None,
)


def body(email: Email = EMAIL, content: Content | None = None, **fields: Any) -> Any:
    email = replace(email, **fields)
    return json.loads(
        send_email_body(email, content or own_content(email), configuration_set="mailstreams")
    )


def test_request_has_configuration_set_charset_and_our_tags() -> None:
    assert body() == {
        "FromEmailAddress": "sender@example.com",
        "Destination": {"ToAddresses": ["o'neil@example.com"]},
        "Content": {
            "Simple": {
                "Subject": {"Data": "Hello – 🚚", "Charset": "UTF-8"},
                "Body": {"Text": {"Data": "Hi", "Charset": "UTF-8"}},
            }
        },
        "EmailTags": [
            {"Name": "attempt", "Value": "01890a5d-ac96-774b-bcce-b302099a8058"},
            {"Name": "outbox", "Value": "01890a5d-ac96-774b-bcce-b302099a8057"},
            {"Name": "tenant", "Value": "shop"},
        ],
        "ConfigurationSetName": "mailstreams",
    }


def test_html_reply_to_cc_bcc_and_headers_are_carried() -> None:
    made = body(
        html="<p>Hi</p>",
        reply_to="help@example.com",
        cc=("cc@example.com",),
        bcc=("bcc@example.com",),
        headers={"X-Ref": "1", "List-Unsubscribe": "<https://example.com/u>"},
    )
    assert made["Content"]["Simple"]["Body"]["Html"] == {"Data": "<p>Hi</p>", "Charset": "UTF-8"}
    assert made["ReplyToAddresses"] == ["help@example.com"]
    assert made["Destination"] == {
        "ToAddresses": ["o'neil@example.com"],
        "CcAddresses": ["cc@example.com"],
        "BccAddresses": ["bcc@example.com"],
    }
    assert made["Content"]["Simple"]["Headers"] == [
        {"Name": "X-Ref", "Value": "1"},
        {"Name": "List-Unsubscribe", "Value": "<https://example.com/u>"},
    ]


def test_own_tags_stand_beside_ours_and_cannot_replace_them() -> None:
    traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    made = body(
        tags={"ref": "order-1_2", "ses:feedback-id-a": "campaign1", "attempt": "forged"},
        traceparent=traceparent,
    )
    tags = {tag["Name"]: tag["Value"] for tag in made["EmailTags"]}
    assert tags == {
        "ref": "order-1_2",
        "ses:feedback-id-a": "campaign1",
        "attempt": str(EMAIL.attempt_id),
        "outbox": str(EMAIL.id),
        "tenant": "shop",
        "traceparent": traceparent,
    }
    assert len(made["EmailTags"]) == len(tags)


@pytest.mark.parametrize(
    "tags",
    [{"ref": "a:b"}, {"ref": ""}, {"ref": "x" * 257}, {"a b": "c"}, {"ref": "a@example.com"}],
)
def test_tag_that_ses_refuses_is_refused_here(tags: dict[str, str]) -> None:
    with pytest.raises(BadMessage, match="tag"):
        body(tags=tags)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "1\r\nBcc: x@example.net"},
        {"X-A: 1\r\nBcc": "x"},
        {"X-A": ""},
        {"X-A": "ü"},
        {"": "x"},
    ],
)
def test_header_that_ses_refuses_is_refused_here(headers: dict[str, str]) -> None:
    with pytest.raises(BadMessage, match="header"):
        body(headers=headers)


@pytest.mark.parametrize("field", ["subject", "sender", "recipient", "reply_to"])
@pytest.mark.parametrize("text", ["a\r\nBcc: x", "a\nb", "a\rb", "a\x00b"])
def test_line_break_is_refused_wherever_it_stands(field: Any, text: Any) -> None:
    with pytest.raises(BadMessage, match="line break"):
        body(replace(EMAIL, **{field: text}))


@pytest.mark.parametrize(
    "name", ["Shop", "Müller, Jürgen", 'The "best" shop', "Shop, Inc.", "日本語" * 40, "🎉" * 60]
)
def test_a_sender_name_is_read_as_it_was_written(name: str) -> None:
    written = body(sender_name=name)["FromEmailAddress"]
    assert written.isascii()
    assert "\n" not in written
    assert max(len(word) for word in written.split(" ")) <= 78
    found, address = parseaddr(written)
    assert (str(make_header(decode_header(found))), address) == (name, EMAIL.sender)


def test_a_sender_name_with_a_line_break_is_refused() -> None:
    with pytest.raises(BadMessage, match="sender_name has a line break"):
        body(sender_name="Shop\r\nBcc: x@example.net")


def test_row_without_any_body_is_refused() -> None:
    with pytest.raises(BadMessage, match="neither a template nor a subject"):
        own_content(replace(EMAIL, text=None))


def test_size_counts_bytes_not_characters() -> None:
    with pytest.raises(BadMessage, match="shorten"):
        body(text="ü" * (LARGEST_BODY // 2 + 1))


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(BadMessage, match="UTF-8"):
        body(text="a\ud800")
