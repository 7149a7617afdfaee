"""Validation of the content of a SendEmail call: Simple and Raw, as SES does it."""

import base64
import binascii
import codecs
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from email.header import decode_header, make_header
from email.parser import BytesHeaderParser

from streams.simulator.attachment_names import REFUSED_EXTENSIONS
from streams.simulator.members import (
    Members,
    missing,
    required_text,
    structure,
    structures,
    text,
)
from streams.simulator.refusals import bad_request

MAX_MESSAGE_BYTES = 40 * 1024 * 1024
MAX_LINE_BYTES = 998
MAX_HEADERS = 15
_HEADER_NAME = re.compile(r"[!-9;-@A-~]{1,126}")
_HEADER_VALUE = re.compile(r"[ -~]{1,870}")
_WRITTEN_BY_SES = ("from", "to", "cc", "bcc", "reply-to", "subject", "mime-version")
_OVERRIDDEN_BY_SES = ("date", "message-id", "return-path")
_ONCE_NAMES = (
    "From Sender Reply-To To Cc Bcc Subject Message-ID In-Reply-To References Date MIME-Version "
    "Content-Type Content-Transfer-Encoding Content-Disposition Content-ID List-Id "
    "List-Unsubscribe Auto-Submitted Precedence Return-Path"
)
_ONCE = tuple(_ONCE_NAMES.split())

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is in the message; `headers` are those that the content itself brings."""

    subject: str
    headers: Headers
    mime_headers: Headers | None = None
    """All headers of Raw content, those for SES included; None: the content is Simple."""

    def mime_values(self, name: str) -> list[str]:
        return [
            value for header, value in self.mime_headers or () if header.lower() == name.lower()
        ]

    def mime_value(self, name: str) -> str | None:
        values = self.mime_values(name)
        return values[0] if values else None


def read_content(members: Members) -> Content:
    content = structure(members, "Content")
    if content is None:
        raise missing("Content")
    kinds = [kind for kind in ("Simple", "Raw", "Template") if content.get(kind) is not None]
    if len(kinds) != 1:
        raise bad_request("Content must hold exactly one of Simple, Raw and Template.")
    if kinds == ["Template"]:
        raise bad_request("Template content is not available: no template exists.")
    part = structure(content, kinds[0])
    if part is None:
        raise missing(kinds[0])
    return _simple(part) if kinds == ["Simple"] else _raw(part)


def _simple(simple: Members) -> Content:
    subject, size = _subject(simple)
    size += _body_size(simple)
    size += sum(_attachment_size(item) for item in structures(simple, "Attachments"))
    _check_size(size)
    return Content(subject=subject, headers=_custom_headers(simple))


def _subject(simple: Members) -> tuple[str, int]:
    subject = structure(simple, "Subject")
    if subject is None:
        raise missing("Subject")
    data, size = _data(subject, "Subject")
    if "\r" in data or "\n" in data:
        raise bad_request("Subject must not contain line breaks.")
    return data, size


def _body_size(simple: Members) -> int:
    body = structure(simple, "Body")
    if body is None:
        raise missing("Body")
    parts = [(name, structure(body, name)) for name in ("Text", "Html")]
    given = [_data(part, f"Body.{name}")[1] for name, part in parts if part is not None]
    if not given:
        raise bad_request("Body must hold Text, Html or both.")
    return sum(given)


def _data(part: Members, where: str) -> tuple[str, int]:
    data = text(part, "Data")
    if data is None:
        raise missing(f"{where}.Data")
    charset = text(part, "Charset") or "UTF-8"
    try:
        codecs.lookup(charset)
    except (LookupError, ValueError) as error:
        raise bad_request(f"{where}.Charset is not a known character set.") from error
    return data, len(data.encode())


def _custom_headers(simple: Members) -> Headers:
    headers = structures(simple, "Headers")
    if len(headers) > MAX_HEADERS:
        raise bad_request(f"Headers must be at most {MAX_HEADERS}.")
    result = []
    for header in headers:
        name, value = required_text(header, "Name"), required_text(header, "Value")
        if not _HEADER_NAME.fullmatch(name):
            raise bad_request("Header name must be 1 to 126 characters of [!-9;-@A-~].")
        if not _HEADER_VALUE.fullmatch(value):
            raise bad_request("Header value must be 1 to 870 printable ASCII characters.")
        result.append((name, value))
    _check_once([*_WRITTEN_BY_SES, *(name for name, _ in result)])
    return tuple(header for header in result if header[0].lower() not in _OVERRIDDEN_BY_SES)


def _attachment_size(attachment: Members) -> int:
    name = required_text(attachment, "FileName")
    if not 1 <= len(name) <= 255:
        raise bad_request("FileName must be 1 to 255 characters.")
    extension = name.rpartition(".")[2].lower()
    if extension in REFUSED_EXTENSIONS:
        raise bad_request(f"Illegal filename '{name}'.")
    for member, limit in (("ContentType", 78), ("ContentId", 78), ("ContentDescription", 1000)):
        if len(text(attachment, member) or "") > limit:
            raise bad_request(f"{member} must be at most {limit} characters.")
    content = required_text(attachment, "RawContent")
    _decode(content, "RawContent")
    return len(content)


def _raw(raw: Members) -> Content:
    data = required_text(raw, "Data")
    _check_size(len(data))
    mime = _decode(data, "Data")
    if not mime:
        raise bad_request("Data must not be empty.")
    if any(len(line) > MAX_LINE_BYTES for line in mime.replace(b"\r\n", b"\n").split(b"\n")):
        raise bad_request(f"A line of the message is longer than {MAX_LINE_BYTES} bytes.")
    everything = tuple(
        (name, " ".join(str(value).split()))
        for name, value in BytesHeaderParser().parsebytes(mime).items()
    )
    _check_once(name for name, _ in everything)
    return Content(
        subject=_readable({name.lower(): value for name, value in everything}.get("subject", "")),
        headers=tuple(header for header in everything if not _is_hidden(header[0])),
        mime_headers=everything,
    )


def _check_once(names: Iterable[str]) -> None:
    seen = Counter(name.lower() for name in names)
    for name in _ONCE:
        if seen[name.lower()] > 1:
            raise bad_request(f"Duplicate header '{name}'.")


def _is_hidden(name: str) -> bool:
    """What SES takes out before it sends."""
    return name.lower().startswith("x-ses-") or name.lower() == "bcc"


def _readable(value: str) -> str:
    try:
        return str(make_header(decode_header(value)))
    except (LookupError, ValueError):
        return value


def _decode(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{where} is not valid base64.") from error


def _check_size(size: int) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise bad_request(f"Message length is more than {MAX_MESSAGE_BYTES} bytes long: '{size}'.")
