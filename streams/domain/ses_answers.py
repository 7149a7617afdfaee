"""What a call of SES can end with: a complete HTTP answer, or a fault before or after the request was written."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

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
    NO_CREDENTIALS = "no-credentials"
    TIMEOUT = "timeout"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """written: a byte of the request may have left, so that nothing is proven."""

    kind: FaultKind
    written: bool


@dataclass(frozen=True, slots=True)
class Missed:
    """The call's time was over before the connection was there: nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer. code is AWS's error code, None if nothing shows that AWS itself answered."""

    status: int
    code: str | None = None
    message: str = ""
    message_id: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCall:
    """A request as it is signed, once: the body and the headers that belong to it."""

    body: bytes
    headers: Mapping[str, str]


def read_answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """The answer in a complete response; headers are looked up case-insensitively by the mapping."""
    content = _object(body)
    request_id = headers.get("x-amzn-RequestId")
    message = content.get("message", content.get("Message"))
    message_id = content.get("MessageId")
    return Answer(
        status=status,
        code=_code(headers.get("x-amzn-ErrorType"))
        or _code(content.get("__type"))
        # A proxy may answer in JSON with a code of its own.
        or (_code(content.get("code")) if request_id else None),
        message=message if isinstance(message, str) else "",
        message_id=message_id
        if isinstance(message_id, str) and _MESSAGE_ID.fullmatch(message_id)
        else None,
        request_id=request_id,
    )


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
