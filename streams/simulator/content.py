"""What the contents of all kinds share: headers, attachments, sizes, the virus check."""

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streams.simulator.attachment_names import REFUSED_EXTENSIONS
from streams.simulator.members import Members, required_text, structures, text
from streams.simulator.refusals import bad_request

MAX_MESSAGE_BYTES = 40 * 1024 * 1024
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

_VIRUS = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-" + b"ANTIVIRUS-TEST-FILE!$H+H*"
"""The test file of the anti-virus industry, in parts so that no scanner takes this one for it."""

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is in the message; `headers` are those that the content itself brings."""

    subject: str
    headers: Headers
    mime_headers: Headers | None = None
    """All headers of Raw content, those for SES included; None: the content is Simple."""

    infected: bool = False
    template_name: str | None = None
    rendering_error: str | None = None
    """Why a template could not be rendered: such a message is accepted and never sent."""

    def mime_values(self, name: str) -> list[str]:
        return [
            value for header, value in self.mime_headers or () if header.lower() == name.lower()
        ]

    def mime_value(self, name: str) -> str | None:
        values = self.mime_values(name)
        return values[0] if values else None


def read_headers(members: Members) -> list[tuple[str, str]]:
    """The headers that a caller gives besides those that SES writes itself."""
    return [_custom_header(header) for header in structures(members, "Headers")]


def _custom_header(header: Members) -> tuple[str, str]:
    name, value = required_text(header, "Name"), required_text(header, "Value")
    if not _HEADER_NAME.fullmatch(name):
        raise bad_request("Header name must be 1 to 126 characters of [!-9;-@A-~].")
    if not _HEADER_VALUE.fullmatch(value):
        raise bad_request("Header value must be 1 to 870 printable ASCII characters.")
    return name, value


def checked_headers(headers: Sequence[tuple[str, str]]) -> Headers:
    """Not too many, none twice that may stand once; without those that SES overrides."""
    if len(headers) > MAX_HEADERS:
        raise bad_request(f"Headers must be at most {MAX_HEADERS}.")
    check_once([*_WRITTEN_BY_SES, *(name for name, _ in headers)])
    return tuple(header for header in headers if header[0].lower() not in _OVERRIDDEN_BY_SES)


def read_attachments(members: Members) -> tuple[int, bool]:
    """The size of the attachments together, and whether one of them is infected."""
    contents = [_attachment(item) for item in structures(members, "Attachments")]
    size = sum(len(content) * 4 // 3 for content in contents)
    return size, any(is_infected(content) for content in contents)


def _attachment(attachment: Members) -> bytes:
    name = required_text(attachment, "FileName")
    if not 1 <= len(name) <= 255:
        raise bad_request("FileName must be 1 to 255 characters.")
    extension = name.rpartition(".")[2].lower()
    if extension in REFUSED_EXTENSIONS:
        raise bad_request(f"Illegal filename '{name}'.")
    for member, limit in (("ContentType", 78), ("ContentId", 78), ("ContentDescription", 1000)):
        if len(text(attachment, member) or "") > limit:
            raise bad_request(f"{member} must be at most {limit} characters.")
    return decode(required_text(attachment, "RawContent"), "RawContent")


def is_infected(content: bytes) -> bool:
    return _VIRUS in content


def check_once(names: Iterable[str]) -> None:
    seen = Counter(name.lower() for name in names)
    for name in _ONCE:
        if seen[name.lower()] > 1:
            raise bad_request(f"Duplicate header '{name}'.")


def decode(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{where} is not valid base64.") from error


def check_size(size: int) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise bad_request(f"Message length is more than {MAX_MESSAGE_BYTES} bytes long: '{size}'.")
