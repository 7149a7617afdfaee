"""What a call of SES can end with: a complete HTTP answer, or a fault before or after the request was written."""

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

import orjson

SEND_EMAIL: Final = "/v2/email/outbound-emails"
SEND_BULK_EMAIL: Final = "/v2/email/outbound-bulk-emails"
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_LONGEST_TEXT: Final = 400
_ADDRESS: Final = re.compile(
    r'(?:"[^"\n]{1,64}"|[^\s<>()\[\],;:"@]{1,128})(?:@|%40)(?:\[[^\s\]]{1,64}\]|[^\s<>()\[\],;:"@]{1,255})'
)
_LEFT_OVER: Final = re.compile(r"[^\s<>]{0,128}(?:@|%40)[^\s<>]{0,255}")
_MESSAGE_ID: Final = re.compile(r"[!-~]{1,256}")
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{1,99}")


class FaultKind(StrEnum):
    """Why there is no complete answer."""

    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect-timeout"
    TLS = "tls"
    PROXY = "proxy"
    NO_CREDENTIALS = "no-credentials"
    TIMEOUT = "timeout"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """written: a byte of the request may have left, so that nothing is proven. detail: what the system says, no address."""

    kind: FaultKind
    written: bool
    detail: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Missed:
    """The call's time was over before the connection was there: nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryResult:
    """What SES says of one entry of a bulk call. message_id: None also where it is not one."""

    status: str
    error: str = ""
    message_id: str | None = None
    has_message_id: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer. code is AWS's error code, None if nothing shows that AWS itself answered.

    clock_ahead_s: so far our clock is ahead of what answered, where it refused and told its time.
    signature_age_s: how old the signature was when the request began to leave.
    results: of the entries of a bulk call, in their order; None if there is no such list.
    entry_status: what SES said of one entry, for which status and code stand, with http_status the one of the whole call.
    """

    status: int
    code: str | None = None
    message: str = ""
    message_id: str | None = None
    request_id: str | None = None
    clock_ahead_s: float | None = field(default=None, compare=False)
    signature_age_s: float = field(default=0.0, compare=False)
    results: tuple[EntryResult, ...] | None = None
    entry_status: str | None = None
    http_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCall:
    """A request as it is signed, once: the body and the headers that belong to it. signed_at is monotonic."""

    body: bytes
    headers: Mapping[str, str]
    path: str = SEND_EMAIL
    signed_at: float = 0.0


def plain_body(headers: Mapping[str, str], body: bytes, *, most: int) -> bytes | None:
    """The body without its encoding; None if it is not known to be whole, cannot be decoded, or is larger."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            body = decoder.decompress(body, most)
        except zlib.error:
            return None
        return body if decoder.eof else None
    if encoding not in ("", "identity"):
        return None
    delimited = "Content-Length" in headers or "Transfer-Encoding" in headers
    # An answer that only the end of the connection ends may have been cut off anywhere.
    return body if delimited or not body or _object(body) else None


def read_answer(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float | None = None,
    signature_age_s: float = 0.0,
) -> Answer:
    """The answer in a complete response; headers are looked up case-insensitively by the mapping. now: since 1970."""
    content = _object(body)
    request_id = headers.get("x-amzn-RequestId")
    message = content.get("message", content.get("Message"))
    return Answer(
        status=status,
        code=_code(headers.get("x-amzn-ErrorType"))
        or _code(content.get("__type"))
        # A proxy may answer in JSON with a code of its own.
        or (_code(content.get("code")) if request_id else None),
        message=message if isinstance(message, str) else "",
        message_id=_message_id(content),
        request_id=request_id,
        clock_ahead_s=_ahead_s(headers.get("Date"), now) if status >= 400 else None,
        signature_age_s=signature_age_s,
        results=_results(content.get("BulkEmailEntryResults")),
    )


def _message_id(content: Mapping[str, Any]) -> str | None:
    found = content.get("MessageId")
    return found if isinstance(found, str) and _MESSAGE_ID.fullmatch(found) else None


def _results(found: object) -> tuple[EntryResult, ...] | None:
    """One for each element, whatever it is: its place says whose it is."""
    if not isinstance(found, list):
        return None
    return tuple(_result(item if isinstance(item, dict) else {}) for item in found)


def _result(item: Mapping[str, Any]) -> EntryResult:
    status, error = item.get("Status"), item.get("Error")
    return EntryResult(
        status=status if isinstance(status, str) else "",
        error=error if isinstance(error, str) else "",
        message_id=_message_id(item),
        has_message_id=item.get("MessageId") is not None,
    )


def _ahead_s(date: str | None, now: float | None) -> float | None:
    """By how much we are ahead of the Date of an answer, which counts whole seconds and was written a moment ago."""
    if date is None or now is None:
        return None
    try:
        return now - parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _code(value: object) -> str | None:
    """The bare code of "namespace#Code:http://..."."""
    if not isinstance(value, str):
        return None
    bare = value.split(":", 1)[0].rsplit("#", 1)[-1].strip()
    return bare if _CODE.fullmatch(bare) else None


def without_addresses(text: str, known: Iterable[str] = ()) -> str:
    """The text with '<address>' in the place of everything that is or looks like one, on one line, at most 400 characters."""
    text = text[: 10 * _LONGEST_TEXT]
    for address in known:
        text = re.sub(re.escape(address), "<address>", text, flags=re.IGNORECASE)
    text = _LEFT_OVER.sub("<address>", _ADDRESS.sub("<address>", text))
    return re.sub(r"[\x00-\x1f\x7f\s]+", " ", text).strip()[:_LONGEST_TEXT]
