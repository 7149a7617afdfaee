"""SendEmail requests are validated as SES validates them."""

import base64
from typing import Any

import orjson
import pytest

from streams.simulator.refusals import RefusedError
from streams.simulator.send_email import Submission, read_send_email
from tests.simulator_rig import simple_mail

KNOWN = ("mailstreams",)


def read(arguments: dict[str, Any]) -> Submission:
    return read_send_email(orjson.dumps(arguments), KNOWN)


def refusal(arguments: dict[str, Any]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        read(arguments)
    return caught.value


def simple(**changes: Any) -> dict[str, Any]:
    content = simple_mail()["Content"]["Simple"] | changes
    return simple_mail(Content={"Simple": content})


def raw(mime: str, **changes: Any) -> dict[str, Any]:
    data = base64.b64encode(mime.encode()).decode()
    return simple_mail(Content={"Raw": {"Data": data}}) | changes


def without(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}


def test_a_plain_message_is_read_whole() -> None:
    submission = read(simple_mail("Ann <ann@example.com>"))
    assert submission.source == "shop@example.com"
    assert submission.recipients == ("ann@example.com",)
    assert submission.tags == (("attempt", "att-1"), ("outbox", "out-1"))
    assert ("To", "Ann <ann@example.com>") in submission.headers


def test_fifty_recipients_pass_and_one_more_does_not() -> None:
    fifty = [f"u{n}@example.com" for n in range(50)]
    assert len(read(simple_mail(Destination={"ToAddresses": fifty})).recipients) == 50
    spread = {
        "ToAddresses": fifty[:25],
        "CcAddresses": fifty[25:],
        "BccAddresses": ["x@example.com"],
    }
    assert refusal(simple_mail(Destination=spread)).message == "Recipient count exceeds 50."


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nobody", "Missing final '@domain'"),
        ("nobody@", "Missing final '@domain'"),
        ("@example.com", "Missing local name"),
        ("Doe, Ann <ann@example.com>", "Missing final '@domain'"),
        ("jürgen@example.com", "Local address contains non-ASCII characters"),
        (
            "Jürgen <j@example.com>",
            "Display name contains non-ASCII characters; encode it by RFC 2047",
        ),
        ("a b@example.com", "Local address contains control or whitespace"),
        ("a@b@example.com", "Local address contains illegal character"),
        (".a@example.com", "Local address starts with dot"),
        ("a..b@example.com", "Local address contains dot-dot"),
        ("a@exämple.com", "Domain contains control or whitespace"),
        ("a@example_1.com", "Domain contains illegal character"),
        ("a@example.com, b@example.com", "Local address contains control or whitespace"),
        ("a@.example.com", "Domain starts with dot"),
        ("a@example..com", "Domain contains dot-dot"),
        ("a@example.com\r\nBcc: b@example.com", "Address contains control characters"),
        (f"{'a' * 65}@example.com", "Local address length is more than 64 characters long"),
    ],
)
def test_bad_addresses_are_refused_in_the_words_of_ses(address: str, message: str) -> None:
    error = refusal(simple_mail(address))
    assert (error.code, error.status, error.message) == ("BadRequestException", 400, message)


@pytest.mark.parametrize(
    "address",
    [
        "ann@example.com",
        "Ann <ann@example.com>",
        '"Doe, Ann" <ann@example.com>',
        "=?UTF-8?Q?J=C3=BCrgen?= <j@example.com>",
        "ann+tag.x_y@sub.xn--exmple-cua.com",
        '"a b"@example.com',
        "o'neil@example.com",
    ],
)
def test_good_addresses_pass(address: str) -> None:
    assert len(read(simple_mail(address)).recipients) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        without(simple_mail(), "FromEmailAddress"),
        simple_mail(FromEmailAddress="nobody"),
        without(simple_mail(), "Content"),
        without(simple_mail(), "Destination"),
        simple_mail(Destination={}),
        simple_mail(ReplyToAddresses=["nobody"]),
        simple_mail(Content={}),
        simple_mail(Content=simple()["Content"] | {"Raw": {"Data": "eA=="}}),
        simple_mail(Content={"Template": {"TemplateData": "{}"}}),
        simple_mail(Content={"Template": {"TemplateName": "t", "TemplateArn": "arn:aws:ses:x"}}),
        without(simple(), "Content") | {"Content": {"Simple": {"Body": {"Text": {"Data": "x"}}}}},
        simple(Subject={"Data": "a\nb"}),
        simple(Subject={"Data": "a\rb"}),
        simple(Subject={"Data": "a", "Charset": "no-such-charset"}),
        simple(Body={}),
        simple(Body={"Text": {}}),
        simple(Headers=[{"Name": f"X-{n}", "Value": "v"} for n in range(16)]),
        simple(Headers=[{"Name": "X:Y", "Value": "v"}]),
        simple(Headers=[{"Name": "x" * 127, "Value": "v"}]),
        simple(Headers=[{"Name": "X-A", "Value": ""}]),
        simple(Headers=[{"Name": "X-A", "Value": "a\r\nBcc: b@example.com"}]),
        simple(Headers=[{"Name": "X-A", "Value": "v" * 871}]),
        simple(Headers=[{"Name": "X-A", "Value": "ü"}]),
        simple(Headers=[{"Name": "Subject", "Value": "second"}]),
        simple(Headers=[{"Name": "List-Id", "Value": "a"}, {"Name": "list-id", "Value": "b"}]),
        simple(Attachments=[{"FileName": "setup.EXE", "RawContent": "eA=="}]),
        simple(Attachments=[{"FileName": "a.txt", "RawContent": "not base64!"}]),
        simple_mail(EmailTags=[{"Name": "a.b", "Value": "v"}]),
        simple_mail(EmailTags=[{"Name": "a", "Value": "v@w"}]),
        simple_mail(EmailTags=[{"Name": "a", "Value": ""}]),
        simple_mail(EmailTags=[{"Name": "a", "Value": "v" * 257}]),
        simple_mail(EmailTags=[{"Name": "ses:", "Value": "v"}]),
        simple_mail(EmailTags=[{"Name": "a", "Value": "ses:v"}]),
        simple_mail(EmailTags=[{"Name": "ses:" + "a" * 253, "Value": "v"}]),
        simple_mail(EmailTags=[{"Name": "a"}]),
        simple_mail(ConfigurationSetName="with space"),
    ],
)
def test_bad_requests_are_refused(arguments: dict[str, Any]) -> None:
    error = refusal(arguments)
    assert (error.code, error.status) == ("BadRequestException", 400)
    assert error.message


@pytest.mark.parametrize(
    "arguments",
    [
        simple(Headers=[{"Name": f"X-{n}", "Value": "v" * 870} for n in range(15)]),
        simple(Headers=[{"Name": "x" * 126, "Value": "v"}]),
        simple(Attachments=[{"FileName": "bill.pdf", "RawContent": "eA=="}]),
        simple_mail(EmailTags=[{"Name": "ses:feedback-id-a", "Value": "v" * 256}]),
        simple_mail(EmailTags=[{"Name": "a" * 256, "Value": "A-_9"}]),
        without(simple_mail(), "ConfigurationSetName", "EmailTags"),
    ],
)
def test_what_is_just_within_the_limits_passes(arguments: dict[str, Any]) -> None:
    assert read(arguments).recipients == ("ann@example.com",)


@pytest.mark.parametrize(
    "change",
    [
        {"ConfigurationSetName": "other"},
        {"TenantName": "t"},
        {"EndpointId": "e.x"},
        {"ListManagementOptions": {"ContactListName": "l"}},
    ],
)
def test_what_does_not_exist_is_not_found(change: dict[str, Any]) -> None:
    error = refusal(simple_mail(**change))
    assert (error.code, error.status) == ("NotFoundException", 404)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"Content": 1}', b'{"EmailTags": "x"}'])
def test_what_is_not_the_right_json_cannot_be_deserialised(body: bytes) -> None:
    document = body if body in (b"{", b"[]") else orjson.dumps(simple_mail() | orjson.loads(body))
    with pytest.raises(RefusedError) as caught:
        read_send_email(document, KNOWN)
    assert caught.value.code == "SerializationException"


def test_a_message_over_forty_megabytes_is_refused() -> None:
    error = refusal(simple(Body={"Text": {"Data": "x" * (40 * 1024 * 1024)}}))
    assert error.code == "BadRequestException"
    assert error.message.startswith("Message length is more than 41943040 bytes long: '")


def test_equal_content_has_an_equal_digest_whatever_its_order() -> None:
    one = simple_mail(
        Content={"Simple": {"Subject": {"Data": "s"}, "Body": {"Text": {"Data": "t"}}}}
    )
    two = simple_mail(
        Content={"Simple": {"Body": {"Text": {"Data": "t"}}, "Subject": {"Data": "s"}}}
    )
    other = simple_mail(
        Content={"Simple": {"Body": {"Text": {"Data": "u"}}, "Subject": {"Data": "s"}}}
    )
    assert read(one).content_digest == read(two).content_digest != read(other).content_digest


def test_what_ses_overrides_is_taken_out() -> None:
    given = [{"Name": "Message-ID", "Value": "<a@b>"}, {"Name": "X-A", "Value": "v"}]
    names = [name for name, _ in read(simple(Headers=given)).headers]
    assert names == ["From", "To", "Subject", "MIME-Version", "X-A"]


MIME = (
    "From: Shop <shop@example.com>\r\nTo: Ann <ann@example.com>, bob@example.com\r\n"
    "Bcc: eve@example.com\r\nSubject: =?UTF-8?Q?Gr=C3=BC=C3=9Fe?=\r\nX-SES-MESSAGE-TAGS: a=1, b=2\r\n"
    "X-SES-CONFIGURATION-SET: mailstreams\r\n\r\nHello\r\n"
)


def test_raw_content_brings_its_own_envelope() -> None:
    names = ("FromEmailAddress", "Destination", "EmailTags", "ConfigurationSetName")
    submission = read(without(raw(MIME), *names))
    assert submission.source == "shop@example.com"
    assert submission.to == ("ann@example.com", "bob@example.com")
    assert submission.bcc == ("eve@example.com",)
    assert submission.tags == (("a", "1"), ("b", "2"))
    assert submission.configuration_set == "mailstreams"
    assert submission.subject == "Grüße"


def test_headers_for_ses_and_bcc_are_taken_out_of_raw_content() -> None:
    names = {name for name, _ in read(raw(MIME)).headers}
    assert names == {"From", "To", "Subject"}


def test_tags_of_the_call_win_over_those_of_the_header() -> None:
    assert read(raw(MIME)).tags == (("attempt", "att-1"), ("outbox", "out-1"))


@pytest.mark.parametrize(
    "mime",
    [
        "",
        MIME.replace("Hello", "x" * 999),
        "Subject: second\r\n" + MIME,
    ],
)
def test_bad_raw_content_is_refused(mime: str) -> None:
    assert refusal(raw(mime)).code == "BadRequestException"
