"""HTTP Basic authentication: which credentials are asked for, and whether a request has them."""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final

from streams.domain.errors import Misconfigured

CHALLENGE: Final = 'Basic realm="mailstreams events", charset="UTF-8"'
_CREDENTIALS: Final = re.compile(r"[^:\s,]+:[^\s,]+")


def parse_credentials(setting: str) -> tuple[str, ...]:
    """The pairs user:password of a setting, separated by commas; Misconfigured if one is none. The text is not quoted: it is a secret."""
    pairs = tuple(pair.strip() for pair in setting.split(",") if pair.strip())
    if not all(_CREDENTIALS.fullmatch(pair) for pair in pairs):
        raise Misconfigured(
            "MAILSTREAMS_EVENTS_BASIC_AUTH has to be user:password, or several of them separated by commas, "
            "without blanks, and without commas inside"
        )
    return pairs


def is_authorized(header: str | None, accepted: Sequence[str]) -> bool:
    """Whether the value of header Authorization holds one of these pairs. How long it takes tells nothing about them."""
    given = _digest(_given(header))
    fitting = [hmac.compare_digest(given, _digest(pair.encode())) for pair in accepted]
    return any(fitting)


def _given(header: str | None) -> bytes:
    scheme, _, token = (header or "").strip().partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(token.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
