"""Says which inputs may be accepted, without the code that is tested: by comparing what is signed with the original."""

import base64
import binascii
import json
import re
import sys
from typing import Any

from tests.fuzz.originals import Original

NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
# One region alone is used here.
URL = re.compile(
    r"https://sns\.eu-central-1\.amazonaws\.com(/SimpleNotificationService-[0-9A-Fa-f]{16,128}\.pem)"
)


def is_acceptable(body: bytes, original: Original) -> bool:
    """Whether the body says what SNS signed, with its signature, version and certificate; other fields may differ."""
    fields = parsed(body)
    if fields is None:
        return False
    names = NOTIFICATION if original.fields["Type"] == "Notification" else CONFIRMATION
    if any(text_of(fields, name) != text_of(original.fields, name) for name in names):
        return False
    if any(
        text_of(fields, name) != original.fields[name]
        for name in ("SignatureVersion", "SigningCertURL")
    ):
        return False
    return decoded(fields.get("Signature")) == decoded(original.fields["Signature"])


def fetched_path(body: bytes) -> str | None:
    """The path of the certificate that may be fetched for the body, if any may."""
    fields = parsed(body)
    url = text_of(fields, "SigningCertURL") if fields is not None else None
    found = URL.fullmatch(url) if url is not None else None
    return found and found[1]


def parsed(body: bytes) -> dict[str, Any] | None:
    """Deeper and with longer numbers than Python reads by itself: no reader shall know more than the judge."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5_000)
    try:
        fields = json.loads(body, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return None
    finally:
        sys.setrecursionlimit(limit)
    return fields if isinstance(fields, dict) else None


def text_of(fields: Any, name: str) -> str | None:
    """What is signed: a text; anything else is not there."""
    value = fields.get(name)
    return value if isinstance(value, str) else None


def decoded(signature: object) -> bytes | None:
    if not isinstance(signature, str):
        return None
    try:
        return base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None
