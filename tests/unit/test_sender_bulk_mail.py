"""The request of SendBulkEmail: what it carries is what SendEmail would carry, and nothing in it is read as a template."""

import json
from dataclasses import replace
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters

from streams.domain.attachments import read_attachments
from streams.domain.attempts import Email
from streams.domain.bulk_mail import LARGEST_DATA, BulkEntry, bulk_entry, send_bulk_email_body
from streams.domain.mail_content import send_email_body
from streams.domain.templates import Content
from streams.domain.topics import Lane
from streams.simulator.bulk_email import read_send_bulk_email
from streams.simulator.template_content import TemplateCall
from streams.simulator.templates import Template, Templates, read_data, read_template
from tests.unit.test_sender_mail_content import EMAIL

BULK = replace(EMAIL, lane=Lane.BULK)
BOTH = Content(subject="Hello – 🚚", text="Hi", html="<p>Hi</p>")
# What Handlebars, HTML or JSON would make something else of.
TRICKY = (
    "{{name}} {{{subject}}} {{#if text}}x{{/if}} {{> part}} {{else}} {{/if}} {{!-- no --}} {{&html}}",
    "}}} }} }{ {{ {{{",
    "<b>&amp; & ' \" ` = / \\ \\{{name}} \\\\{{{text}}}",
    "$1 \\1 ${x} %s {0}",
    'line\r\nline\n\n\ttab \\u0041 \\n "quoted"',
    "ü 🚚 \u2028 \u00a0 ﷽",
    "",
)


def entry(email: Email = BULK, content: Content = BOTH, ses_tenant: str | None = None) -> BulkEntry:
    found = bulk_entry(email, content, ses_tenant=ses_tenant)
    assert found is not None
    return found


def body(*entries: BulkEntry) -> Any:
    return json.loads(raw(*entries))


def raw(*entries: BulkEntry) -> bytes:
    [shared] = {e.shared for e in entries}
    return send_bulk_email_body(shared, [e.body for e in entries], configuration_set="mailstreams")


def full(**fields: Any) -> Email:
    values = {
        "sender_name": "Müller, Jürgen",
        "reply_to": "help@example.com",
        "headers": {"X-Ref": "1", "List-Unsubscribe": "<https://example.com/u>"},
        "tags": {"ref": "order-1_2", "attempt": "forged"},
        "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
    }
    return replace(BULK, **values | fields)


def test_the_service_model_knows_every_part_of_the_request() -> None:
    shape = (
        botocore.session.Session()
        .get_service_model("sesv2")
        .operation_model("SendBulkEmail")
        .input_shape
    )
    made = body(*(entry(full(recipient=f"u{n}@example.com"), ses_tenant="shop") for n in range(50)))
    validate_parameters(made, shape)
    spoilt = made | {"Subject": "no such part"}
    with pytest.raises(Exception, match="Subject"):
        validate_parameters(spoilt, shape)


def test_sender_reply_to_destination_headers_and_tags_are_those_of_a_call_of_its_own() -> None:
    email = full()
    alone = json.loads(
        send_email_body(email, BOTH, configuration_set="mailstreams", ses_tenant="shop")
    )
    made = body(entry(email, ses_tenant="shop"))
    [one] = made["BulkEmailEntries"]
    for name in ("FromEmailAddress", "ReplyToAddresses", "ConfigurationSetName", "TenantName"):
        assert made[name] == alone[name]
    assert one["Destination"] == alone["Destination"]
    assert one["ReplacementHeaders"] == alone["Content"]["Simple"]["Headers"]
    assert one["ReplacementTags"] == alone["EmailTags"]
    assert "DefaultEmailTags" not in made


@pytest.mark.parametrize("subject", ["Hello", "{{name}} & {{{text}}} <b>"])
@pytest.mark.parametrize("text", [*TRICKY, None])
@pytest.mark.parametrize("html", [*TRICKY, None])
def test_content_comes_out_as_it_went_in(subject: str, text: str | None, html: str | None) -> None:
    if text is None and html is None:
        return
    made = body(entry(content=Content(subject=subject, text=text, html=html)))
    template = made["DefaultContent"]["Template"]
    [one] = made["BulkEmailEntries"]
    data = one["ReplacementEmailContent"]["ReplacementTemplate"]["ReplacementTemplateData"]
    values = read_data(template["TemplateData"]) | read_data(data)
    rendered = read_template(template["TemplateContent"]).rendered(values)
    assert rendered == Template(subject=subject, text=text, html=html)


def test_the_simulator_takes_it_with_each_entry_s_own_subject_and_tags() -> None:
    emails = [replace(BULK, recipient=f"u{n}@example.com") for n in range(3)]
    made = raw(
        *(
            entry(email, replace(BOTH, subject=f"{{{{{{subject}}}}}} {n}"))
            for n, email in enumerate(emails)
        )
    )
    call = read_send_bulk_email(made, {"mailstreams"}, Templates("arn:"))
    subjects = [getattr(submission, "subject", submission) for submission in call.entries]
    assert subjects == [f"{{{{{{subject}}}}}} {n}" for n in range(3)]
    TemplateCall(json.loads(made)["DefaultContent"]["Template"], Templates("arn:"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"tenant": "other"}),
        ({}, {"sender": "other@example.com"}),
        ({}, {"sender_name": "Shop"}),
        ({"reply_to": "a@example.com"}, {"reply_to": "b@example.com"}),
        ({"reply_to": "a@example.com"}, {}),
    ],
)
def test_messages_that_differ_in_what_a_call_shares_do_not_share_one(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert entry(replace(BULK, **one)).shared != entry(replace(BULK, **other)).shared
    assert entry(replace(BULK, **one)).shared == entry(replace(BULK, **one)).shared


def test_messages_of_other_ses_tenants_or_other_parts_do_not_share_a_call() -> None:
    assert entry(ses_tenant="a").shared != entry(ses_tenant="b").shared
    shared = {
        entry(content=content).shared
        for content in (BOTH, replace(BOTH, text=None), replace(BOTH, html=None))
    }
    assert len(shared) == 3


ATTACHMENT = read_attachments(
    [{"url": "https://example.com/a.pdf", "name": "a.pdf", "sha256": "0" * 64, "size": 1}]
)


@pytest.mark.parametrize(
    "fields",
    [
        {"lane": Lane.TRANSACTIONAL},
        {"cc": ("cc@example.com",)},
        {"bcc": ("bcc@example.com",)},
        {"attachments": ATTACHMENT},
        {"headers": {f"X-{n}": "1" for n in range(16)}},
        {"headers": {"X-A": "1\r\nBcc: x@example.net"}},
        {"tags": {"ref": "a:b"}},
        {"recipient": "a\r\nb@example.com"},
        {"sender_name": "Shop\nBcc: x"},
        {"reply_to": "a\nb"},
    ],
)
def test_what_a_bulk_call_cannot_carry_or_would_be_refused_for_goes_alone(
    fields: dict[str, Any],
) -> None:
    assert bulk_entry(replace(BULK, **fields), BOTH, ses_tenant=None) is None


@pytest.mark.parametrize("subject", ["", " Hello", "Hello  you", "a\u00a0b", "a\nb", "a\x00b"])
def test_a_subject_that_a_template_might_change_goes_alone(subject: str) -> None:
    assert bulk_entry(BULK, replace(BOTH, subject=subject), ses_tenant=None) is None


def test_content_larger_than_the_data_of_an_entry_goes_alone() -> None:
    assert bulk_entry(BULK, replace(BOTH, text="ü" * LARGEST_DATA), ses_tenant=None) is None
    assert bulk_entry(BULK, replace(BOTH, text='"' * (LARGEST_DATA // 2)), ses_tenant=None) is None
    data = json.loads(entry(content=replace(BOTH, text="x" * (LARGEST_DATA - 100))).body)
    replacement = data["ReplacementEmailContent"]["ReplacementTemplate"]
    assert len(replacement["ReplacementTemplateData"].encode()) <= LARGEST_DATA


def test_content_that_utf_8_cannot_write_goes_alone() -> None:
    assert bulk_entry(BULK, replace(BOTH, text="a\ud800"), ses_tenant=None) is None
