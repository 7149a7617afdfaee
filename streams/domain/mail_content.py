"""The body of SES v2 SendEmail for a claimed row. What SES would refuse is refused here, with what to change."""

import base64
import re
from collections.abc import Sequence
from email.header import Header
from email.utils import formataddr
from typing import Any, Final

import orjson

from streams.domain.attachments import Attachment
from streams.domain.attempts import Email
from streams.domain.errors import BadMessage
from streams.domain.templates import Content

CHARSET: Final = "UTF-8"
# SES takes 40 MB after base64, which makes 4 bytes of 3; headers and MIME need some.
LARGEST_BODY: Final = (40 * 1024 * 1024 - 64 * 1024) * 3 // 4
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_TAG: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_TAG_NAME: Final = re.compile(r"(ses:)?[A-Za-z0-9_-]{1,252}")
_HEADER_NAME: Final = re.compile(r"[!-9;-~]{1,126}")
_HEADER_VALUE: Final = re.compile(r"[ -~]{1,870}")


def own_content(email: Email) -> Content:
    """The content that stands in the row itself; BadMessage if there is none."""
    if email.subject is None or (email.text is None and email.html is None):
        raise BadMessage("the row has neither a template nor a subject and a body: insert it anew")
    return Content(subject=email.subject, text=email.text, html=email.html)


def send_email_body(
    email: Email,
    content: Content,
    *,
    configuration_set: str,
    ses_tenant: str | None = None,
    files: Sequence[bytes] = (),
) -> bytes:
    """The JSON that is signed and posted, always with the configuration set and our tags. files: of email.attachments, in order."""
    _check_size(content, files)
    body: dict[str, Any] = {
        "FromEmailAddress": from_address(email),
        "Destination": destination(email),
        "Content": {"Simple": _simple(email, content, files)},
        "EmailTags": tags(email),
        "ConfigurationSetName": configuration_set,
    }
    if ses_tenant is not None:
        body["TenantName"] = ses_tenant
    if email.reply_to is not None:
        body["ReplyToAddresses"] = [one_line(email.reply_to, "reply_to")]
    try:
        return orjson.dumps(body)
    except TypeError as error:  # a lone surrogate, which variables can carry and UTF-8 cannot
        raise BadMessage(
            "the content has characters that UTF-8 cannot write: correct it and send again"
        ) from error


def from_address(email: Email) -> str:
    """The address, with the name before it as mail writes it: in quotes, or in encoded words of at most 75 characters."""
    address = one_line(email.sender, "sender")
    if email.sender_name is None:
        return address
    name = one_line(email.sender_name, "sender_name")
    if name.isascii():
        return formataddr((name, address))
    return f"{Header(name, 'utf-8', maxlinelen=75).encode(linesep='')} <{address}>"


def destination(email: Email) -> dict[str, list[str]]:
    """The lists of addresses that are not empty."""
    lists = {
        "ToAddresses": (email.recipient,),
        "CcAddresses": email.cc,
        "BccAddresses": email.bcc,
    }
    return {
        name: [one_line(a, name) for a in addresses]
        for name, addresses in lists.items()
        if addresses
    }


def _simple(email: Email, content: Content, files: Sequence[bytes]) -> dict[str, Any]:
    parts = {"Text": content.text, "Html": content.html}
    simple: dict[str, Any] = {
        "Subject": _data(one_line(content.subject, "subject")),
        "Body": {name: _data(part) for name, part in parts.items() if part is not None},
    }
    if email.headers:
        simple["Headers"] = headers(email)
    if email.attachments:
        simple["Attachments"] = [
            _file(attachment, data)
            for attachment, data in zip(email.attachments, files, strict=True)
        ]
    return simple


def _file(attachment: Attachment, data: bytes) -> dict[str, str]:
    file = {
        "FileName": attachment.name,
        "ContentType": attachment.type,
        "ContentDisposition": "ATTACHMENT" if attachment.content_id is None else "INLINE",
        "ContentTransferEncoding": "BASE64",
        "RawContent": base64.b64encode(data).decode("ascii"),
    }
    return file if attachment.content_id is None else file | {"ContentId": attachment.content_id}


def _data(text: str) -> dict[str, str]:
    return {"Data": text, "Charset": CHARSET}


def tags(email: Email) -> list[dict[str, str]]:
    """The row's own, and ours, which they cannot replace."""
    named = dict(email.tags)
    named |= {"attempt": str(email.attempt_id), "outbox": str(email.id), "tenant": email.tenant}
    if email.traceparent is not None:
        named["traceparent"] = email.traceparent
    for name, value in named.items():
        if not (_TAG_NAME.fullmatch(name) and _TAG.fullmatch(value)):
            raise BadMessage(
                "a tag is not what SES takes: use 1 to 256 ASCII letters, digits, _ and - in its name and value"
            )
    return [{"Name": name, "Value": value} for name, value in named.items()]


def headers(email: Email) -> list[dict[str, str]]:
    """Those of the row."""
    return [_header(name, value) for name, value in email.headers.items()]


def _header(name: str, value: str) -> dict[str, str]:
    if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
        raise BadMessage(
            "a header is not what SES takes: its name needs 1 to 126 visible ASCII characters without a colon, "
            "its value 1 to 870 printable ASCII characters"
        )
    return {"Name": name, "Value": value}


def one_line(text: str, field: str) -> str:
    """The text, if it cannot begin another header."""
    if _CONTROL.search(text):
        raise BadMessage(f"{field} has a line break or control character: take it out")
    return text


def _check_size(content: Content, files: Sequence[bytes]) -> None:
    parts = [part.encode("utf-8", "replace") for part in (content.text, content.html) if part]
    size = sum(map(len, (*parts, *files)))
    if size > LARGEST_BODY:
        raise BadMessage(
            f"text, html and attachments have {size} bytes, SES takes at most {LARGEST_BODY} before base64: shorten them"
        )
