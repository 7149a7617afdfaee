"""Envelopes as FORMAT.md wants them signed, and the certificates of the test's keys."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from uuid import uuid4

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from tests.cases.placeholders import filled, filling
from tests.sns_signing import certificate, signing_key

REGION: Final = "eu-central-1"
TOPIC: Final = f"arn:aws:sns:{REGION}:111122223333:ses-events-example"

_NOTIFICATION: Final = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION: Final = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)
_CONFIRMATIONS: Final = ("SubscriptionConfirmation", "UnsubscribeConfirmation")
_LONE: Final = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Urls:
    """The certificate's file name of a variant and those that continue it."""

    name: str = field(default_factory=lambda: uuid4().hex)

    def certificate_url(self, topic: object) -> str:
        return url_of(topic, self.name)


def url_of(topic: object, name: str) -> str:
    """The URL where SNS keeps a certificate for the topic's region and partition."""
    host = sns_host(topic) or f"sns.{REGION}.amazonaws.com"
    return f"https://{host}/SimpleNotificationService-{name}.pem"


def sns_host(topic: object) -> str | None:
    """The host of SNS in the topic's region; None if it names none."""
    parts = topic.split(":") if isinstance(topic, str) else []
    if len(parts) < 4 or not re.fullmatch(r"[a-z0-9-]+", parts[3]):
        return None
    return f"sns.{parts[3]}.amazonaws.com" + (".cn" if parts[1] == "aws-cn" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One request, ready to be sent."""

    headers: Mapping[str, str]
    body: bytes
    envelope: Mapping[str, Any] | None
    new_certificate_url: str


def make(variant: Mapping[str, Any], urls: Urls, now: datetime) -> Made:
    """Fills in and signs; a body that is streamed is not looked at."""
    envelope = variant.get("envelope")
    topic = None if envelope is None else envelope.get("TopicArn")
    new_url = url_of(topic, uuid4().hex)
    given = {
        "certificate-url": urls.certificate_url(topic),
        "new-certificate-url": new_url,
        "message-id": str(uuid4()),
    }
    fill = filling(now, given)
    headers = filled(variant["headers"], fill)
    if envelope is None:
        text = variant["body"] if isinstance(variant["body"], str) else ""
        body = filled(text, fill).encode("utf-8", "surrogatepass")
        return Made(headers=headers, body=body, envelope=None, new_certificate_url=new_url)
    done = signed(filled(envelope, fill), variant["sign"])
    body = as_json(done, ascii_only=variant.get("encoding") == "ascii")
    return Made(headers=headers, body=body, envelope=done, new_certificate_url=new_url)


def as_json(envelope: Mapping[str, Any], *, ascii_only: bool) -> bytes:
    """In the order of its keys. A lone surrogate, which UTF-8 cannot carry, stays escaped in both encodings."""
    text = json.dumps(envelope, ensure_ascii=ascii_only)
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def signed(envelope: Mapping[str, Any], sign: str) -> dict[str, Any]:
    """The envelope with its signature in the place of <signature>."""
    if sign == "none":
        return dict(envelope)
    key = {"second-key": "second", "attacker": "attacker"}.get(sign, "trusted")
    data = string_to_sign(envelope).encode(errors="replace")
    if sign == "no-final-newline":
        data = data.removesuffix(b"\n")
    signature = base64.b64encode(
        signing_key(key).sign(data, padding.PKCS1v15(), _hash(envelope, sign))
    ).decode()
    return {**envelope, "Signature": signature}


def _hash(envelope: Mapping[str, Any], sign: str) -> hashes.HashAlgorithm:
    version_2 = envelope.get("SignatureVersion") == "2"
    if sign == "sha256" or (sign != "sha1" and version_2):
        return hashes.SHA256()
    return hashes.SHA1()  # noqa: S303 what version 1 is


def string_to_sign(envelope: Mapping[str, Any]) -> str:
    """Name and value of the fields of this Type, each with a newline; what is missing or no text is left out."""
    names = _CONFIRMATION if envelope.get("Type") in _CONFIRMATIONS else _NOTIFICATION
    return "".join(f"{n}\n{envelope[n]}\n" for n in names if isinstance(envelope.get(n), str))


@cache
def pem(answer: str) -> bytes:
    """The certificate that goes by this word of FORMAT.md."""
    now = datetime.now(UTC)
    days = {"expired": (-30, -1), "not-yet-valid": (1, 30)}.get(answer, (-30, 30))
    key = answer if answer in ("second", "attacker") else "trusted"
    return certificate(signing_key(key), now=now, days=days)


def genuine(message: str, now: datetime, urls: Urls) -> bytes:
    """A notification of ours that carries this message, as SNS posts it."""
    fill = filling(now, {})
    envelope = {
        "Type": "Notification",
        "MessageId": str(uuid4()),
        "TopicArn": TOPIC,
        "Message": message,
        "Timestamp": filled("<now>", fill),
        "SignatureVersion": "1",
        "SigningCertURL": urls.certificate_url(TOPIC),
        "UnsubscribeURL": f"https://{sns_host(TOPIC)}/?Action=Unsubscribe",
    }
    return as_json(signed(envelope, "by-version"), ascii_only=True)
