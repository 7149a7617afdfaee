"""Attachments by reference: what a row may say, and from where nothing is ever fetched."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from streams.domain.attachments import Places, locate, read_attachments
from streams.domain.errors import BadMessage, Misconfigured
from streams.domain.mail_content import LARGEST_BODY, send_email_body
from streams.domain.ses_tenants import SesTenants
from streams.domain.templates import Content
from tests.unit.test_sender_mail_content import EMAIL

PLACES = Places(
    [
        "https://files.example.com/mail/",
        "https://files.example.com:8443/",
        "s3://bucket.example/out",
        "file:///srv/files/",
    ]
)
CONTENT = Content(subject="Hello", text="Hi", html=None)


@pytest.mark.parametrize(
    "url",
    [
        "https://files.example.com/mail/a.pdf",
        "https://FILES.example.com/mail/a.pdf",
        "https://files.example.com:443/mail/b/a.pdf?version=3",
        "https://files.example.com:8443/a.pdf",
        "s3://bucket.example/out/2026/a%20b.pdf",
        "file:///srv/files/x/a.pdf",
    ],
)
def test_what_lies_in_an_allowed_place_may_be_fetched(url: str) -> None:
    location, place = PLACES.find(url)
    assert location.path.startswith(place.path)


@pytest.mark.parametrize(
    "url",
    [
        "https://files.example.com/other/a.pdf",
        "https://files.example.com/mail",
        "https://files.example.com/mail/",
        "https://files.example.com/mailbox/a.pdf",
        "https://files.example.com/mail/../private/a.pdf",
        "https://files.example.com/mail/./a.pdf",
        "https://files.example.com/mail//a.pdf",
        "https://files.example.com/mail/%2e%2e/private/a.pdf",
        "https://files.example.com/mail/%2E%2e%2Fa.pdf",
        "https://files.example.com/mail/..%5ca.pdf",
        "https://files.example.com/mail\\@evil.example/a.pdf",
        "https://files.example.com@evil.example/mail/a.pdf",
        "https://user:password@files.example.com/mail/a.pdf",
        "https://files.example.com.evil.example/mail/a.pdf",
        "https://files.example.com:444/mail/a.pdf",
        "https://files.example.com:port/mail/a.pdf",
        "https://files.example.com./mail/a.pdf",
        "http://files.example.com/mail/a.pdf",
        "ftp://files.example.com/mail/a.pdf",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/mail/a.pdf",
        "https://files.example.com/mail/a.pdf#x",
        "https://files.example.com/mail/a b.pdf",
        "https://files.example.com/mail/a\r\nHost: evil.example",
        "https://f\u0131les.example.com/mail/a.pdf",
        "//files.example.com/mail/a.pdf",
        "/srv/files/a.pdf",
        "s3://bucket.example/outside/a.pdf",
        "s3://other/out/a.pdf",
        "s3://bucket.example/out/a.pdf?versionId=1",
        "file:///srv/files/../../etc/passwd",
        "file:///srv/files/%2e%2e/x",
        "file:///etc/passwd",
        "file://localhost/srv/files/a.pdf",
        "file:/srv/files/a.pdf",
        "data:text/plain,hello",
        "",
    ],
)
def test_nothing_else_is_fetched(url: str) -> None:
    with pytest.raises(BadMessage):
        PLACES.find(url)


def test_without_places_nothing_is_allowed() -> None:
    with pytest.raises(BadMessage, match="MAILSTREAMS_ATTACHMENT_PLACES"):
        Places([]).find("https://files.example.com/a.pdf")


@pytest.mark.parametrize(
    "place",
    ["files.example.com", "http://files.example.com/", "file:///", "https:///x", "s3:bucket", "https://a@b/"],
)  # fmt: skip
def test_place_that_cannot_be_meant_is_refused(place: str) -> None:
    with pytest.raises(Misconfigured, match="MAILSTREAMS_ATTACHMENT_PLACES"):
        Places([place])


def test_keys_of_s3_and_paths_of_files_are_decoded() -> None:
    assert locate("s3://bucket/a%20b/c%2Bd.pdf").path == "/a b/c+d.pdf"
    assert locate("https://h/a%20b").path == "/a%20b"


GOOD: dict[str, Any] = {
    "url": "file:///srv/files/a.pdf",
    "name": "a.pdf",
    "type": "application/pdf",
    "sha256": "0" * 64,
    "size": 3,
}


@pytest.mark.parametrize(
    "change",
    [
        {"url": None}, {"url": 7}, {"url": "x" * 2001}, {"name": ""}, {"name": "a/b.pdf"}, {"name": "a\r\nb.pdf"},
        {"name": "x" * 256}, {"name": "run.exe"}, {"name": "run.EXE "}, {"sha256": "0" * 63}, {"sha256": "A" * 64},
        {"sha256": None}, {"size": 0}, {"size": -1}, {"size": "3"}, {"size": True}, {"size": 1.5}, {"type": "pdf"},
        {"type": "a/b\r\nX: y"}, {"type": "a/" + "b" * 80}, {"content_id": "<x>"}, {"content_id": ""}, {"more": 1},
    ],
)  # fmt: skip
def test_reference_that_ses_or_we_could_not_take_is_refused(change: dict[str, Any]) -> None:
    assert read_attachments([GOOD])
    with pytest.raises(BadMessage, match="attachment 2: "):
        read_attachments([GOOD, GOOD | change])


@pytest.mark.parametrize("given", [{}, "x", [7], [GOOD] * 21])
def test_attachments_are_a_short_list_of_objects(given: object) -> None:
    with pytest.raises(BadMessage):
        read_attachments(given)


def test_request_carries_the_files_with_their_names() -> None:
    given = [GOOD, GOOD | {"name": "logo.png", "type": "image/png", "content_id": "logo"}]
    email = replace(EMAIL, attachments=read_attachments(given))
    body = send_email_body(
        email, CONTENT, configuration_set="mailstreams", ses_tenant="shop", files=[b"abc", b"\x00\xff!"]
    )  # fmt: skip
    request = json.loads(body)
    first, second = request["Content"]["Simple"]["Attachments"]
    assert base64.b64decode(first["RawContent"]) == b"abc"
    assert base64.b64decode(second["RawContent"]) == b"\x00\xff!"
    assert (first["FileName"], first["ContentType"], first["ContentDisposition"]) == (
        "a.pdf",
        "application/pdf",
        "ATTACHMENT",
    )
    assert (second["ContentDisposition"], second["ContentId"]) == ("INLINE", "logo")
    assert "ContentId" not in first
    assert request["TenantName"] == "shop"
    assert request["ConfigurationSetName"] == "mailstreams"


def test_size_counts_text_and_files_together_after_base64() -> None:
    email = replace(EMAIL, attachments=read_attachments([GOOD, GOOD]))
    half = b"x" * (LARGEST_BODY // 2)
    with pytest.raises(BadMessage, match="shorten"):
        send_email_body(email, CONTENT, configuration_set="mailstreams", files=[half, half])


def test_tenants_of_ses() -> None:
    some = SesTenants(["shop", "news=news-in-ses"])
    assert [some.name_of(t) for t in ("shop", "news", "other")] == ["shop", "news-in-ses", None]
    assert SesTenants(["*", "news=n"]).name_of("other") == "other"
    assert SesTenants(["*", "news=n"]).name_of("news") == "n"
    assert SesTenants().name_of("shop") is None
    with pytest.raises(Misconfigured, match="MAILSTREAMS_SES_TENANTS"):
        SesTenants(["a b"])
