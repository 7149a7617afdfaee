"""The envelope of Amazon SNS: how it is read, what of it is signed, and every reason for which one is refused."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from streams.domain.errors import BadMessage
from streams.domain.timestamps import parse_timestamp
from streams.domain.wire_json import is_swollen, loads

RAW_DELIVERY_HEADER: Final = "x-amz-sns-rawdelivery"
TOPIC_HEADER: Final = "x-amz-sns-topic-arn"
MESSAGE_ID_HEADER: Final = "x-amz-sns-message-id"


class Reason(StrEnum):
    """What became of a request: the label of the metric and the text of the answer."""

    ACCEPTED = "accepted"
    UNSUBSCRIBED = "unsubscribed"
    UNREADABLE = "unreadable"
    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    RAW_DELIVERY = "raw-delivery"
    UNSIGNED = "unsigned"
    UNSUPPORTED_VERSION = "unsupported-version"
    UNSUPPORTED_TYPE = "unsupported-type"
    BAD_CERTIFICATE_URL = "bad-certificate-url"
    BAD_CERTIFICATE = "bad-certificate"
    BAD_SIGNATURE = "bad-signature"
    UNKNOWN_TOPIC = "unknown-topic"
    STALE = "stale"
    UNAUTHORIZED = "unauthorized"
    CERTIFICATE_UNAVAILABLE = "certificate-unavailable"
    CONFIRMATION_FAILED = "confirmation-failed"
    PUBLISH_FAILED = "publish-failed"
    OVERLOADED = "overloaded"

    @property
    def status(self) -> int:
        """The answer to SNS: it drops after a 4xx and tries again after a 5xx."""
        return _STATUS.get(self, 403)


_STATUS: Final = {
    Reason.ACCEPTED: 200,
    Reason.UNSUBSCRIBED: 200,
    Reason.UNREADABLE: 200,
    Reason.MALFORMED: 400,
    Reason.RAW_DELIVERY: 400,
    Reason.UNSUPPORTED_TYPE: 400,
    Reason.UNAUTHORIZED: 401,
    Reason.TOO_LARGE: 413,
    Reason.CERTIFICATE_UNAVAILABLE: 503,
    Reason.CONFIRMATION_FAILED: 503,
    Reason.PUBLISH_FAILED: 503,
    Reason.OVERLOADED: 503,
}


class EnvelopeType(StrEnum):
    """The field Type."""

    NOTIFICATION = "Notification"
    SUBSCRIPTION_CONFIRMATION = "SubscriptionConfirmation"
    UNSUBSCRIBE_CONFIRMATION = "UnsubscribeConfirmation"


_TYPES: Final = {kind.value: kind for kind in EnvelopeType}
_NOTIFICATION_FIELDS: Final = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION_FIELDS: Final = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)
_SIGNATURE_FIELDS: Final = ("Signature", "SignatureVersion", "SigningCertURL")
# SHA-1 is what version 1 is; the setting sns_signature_versions can refuse it.
_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "1": hashes.SHA1(),  # noqa: S303
    "2": hashes.SHA256(),
}
SIGNATURE_VERSIONS: Final = frozenset(_HASHES)

_ARN: Final = re.compile(
    r"arn:(aws|aws-cn|aws-us-gov):sns:([a-z]{2}(?:-[a-z]+)+-\d{1,2}):(\d{12}):([A-Za-z0-9_-]{1,256})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicArn:
    """The name of a standard topic."""

    text: str
    partition: str
    region: str

    @classmethod
    def parse(cls, text: str) -> "TopicArn | None":
        """None if it is not the ARN of a standard SNS topic."""
        found = _ARN.fullmatch(text)
        return found and cls(text=text, partition=found[1], region=found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What SNS posts, well-formed but not yet believed."""

    type: EnvelopeType
    message_id: str
    topic: TopicArn
    message: str
    timestamp: datetime
    token: str | None
    signature_version: str
    signature: bytes
    certificate_url: str
    signed_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an envelope is refused; detail is a sentence of ours that quotes nothing of it. claimed_topic: what an unknown topic
    calls itself."""

    reason: Reason
    detail: str
    claimed_topic: str | None = None


def read_envelope(body: bytes, *, raw_delivery: bool = False) -> Envelope | Refusal:
    """The envelope of a request's body; raw_delivery: the request's header says so."""
    if raw_delivery:
        return _RAW_DELIVERY
    if is_swollen(body):
        return Refusal(reason=Reason.MALFORMED, detail="the body has more values than an envelope")
    try:
        fields = loads(body)
    except BadMessage:
        return Refusal(reason=Reason.MALFORMED, detail="the body is not JSON")
    if not isinstance(fields, dict):
        return Refusal(reason=Reason.MALFORMED, detail="the body is not a JSON object")
    if "Type" not in fields and fields.keys() & {"eventType", "notificationType", "mail"}:
        return _RAW_DELIVERY
    return _typed(fields)


_RAW_DELIVERY: Final = Refusal(
    reason=Reason.RAW_DELIVERY,
    detail="raw message delivery is on, which strips the signature: set RawMessageDelivery of the subscription to false",
)


def _typed(fields: dict[str, Any]) -> Envelope | Refusal:
    name = fields.get("Type")
    if not isinstance(name, str):
        return Refusal(reason=Reason.MALFORMED, detail="Type is missing")
    kind = _TYPES.get(name)
    if kind is None:
        return Refusal(reason=Reason.UNSUPPORTED_TYPE, detail="Type is not one that we know")
    missing = [name for name in _SIGNATURE_FIELDS if fields.get(name) is None]
    if missing:
        return Refusal(reason=Reason.UNSIGNED, detail=f"{', '.join(missing)} is missing")
    wrong = [name for name in _WANTED[kind] if not isinstance(fields.get(name), str)]
    if wrong:
        return Refusal(reason=Reason.MALFORMED, detail=f"{', '.join(wrong)} is missing or no text")
    return _checked(kind, fields)


def _checked(kind: EnvelopeType, fields: dict[str, Any]) -> Envelope | Refusal:
    if fields["SignatureVersion"] not in SIGNATURE_VERSIONS:
        return Refusal(reason=Reason.UNSUPPORTED_VERSION, detail="SignatureVersion is not 1 or 2")
    # The string to sign has no quotes: with line breaks here one text of it could be taken apart in two ways.
    if "\n" in fields["MessageId"]:
        return Refusal(reason=Reason.MALFORMED, detail="MessageId has a line break")
    if kind is EnvelopeType.SUBSCRIPTION_CONFIRMATION and not fields["Token"].strip():
        return Refusal(reason=Reason.MALFORMED, detail="Token is empty")
    timestamp = parse_timestamp(fields["Timestamp"])
    if timestamp is None:
        return Refusal(reason=Reason.MALFORMED, detail="Timestamp is not a time")
    topic = TopicArn.parse(fields["TopicArn"])
    if topic is None:
        return Refusal(
            reason=Reason.UNKNOWN_TOPIC,
            detail="TopicArn is not the ARN of a topic",
            claimed_topic=fields["TopicArn"],
        )
    try:
        signature = base64.b64decode(fields["Signature"], validate=True)
    except (binascii.Error, ValueError):
        return Refusal(reason=Reason.BAD_SIGNATURE, detail="Signature is not Base64")
    return Envelope(
        type=kind,
        message_id=fields["MessageId"],
        topic=topic,
        message=fields["Message"],
        timestamp=timestamp,
        token=fields.get("Token") if kind is not EnvelopeType.NOTIFICATION else None,
        signature_version=fields["SignatureVersion"],
        signature=signature,
        certificate_url=fields["SigningCertURL"],
        signed_text=string_to_sign(kind, fields),
    )


def signed_fields(kind: EnvelopeType) -> tuple[str, ...]:
    """The names that the signature covers, in order."""
    return _NOTIFICATION_FIELDS if kind is EnvelopeType.NOTIFICATION else _CONFIRMATION_FIELDS


_WANTED: Final = {
    kind: sorted({*signed_fields(kind), *_SIGNATURE_FIELDS} - {"Subject"}) for kind in EnvelopeType
}


def string_to_sign(kind: EnvelopeType, fields: Mapping[str, Any]) -> str:
    """Name and value of each signed field that is a text, an empty one too, each followed by a newline, also the last."""
    return "".join(
        f"{name}\n{fields[name]}\n"
        for name in signed_fields(kind)
        if isinstance(fields.get(name), str)
    )


def is_genuine(envelope: Envelope, key: RSAPublicKey) -> bool:
    """Whether the signature of this version fits the signed fields and the key."""
    algorithm = _HASHES[envelope.signature_version]
    for signed in _encodings(envelope.signed_text):
        try:
            key.verify(envelope.signature, signed, padding.PKCS1v15(), algorithm)
        except InvalidSignature:
            continue
        return True
    return False


def _encodings(text: str) -> tuple[bytes, ...]:
    """The bytes that were signed. JSON carries lone surrogates and UTF-8 does not: a signer puts "?" or three bytes for them."""
    try:
        return (text.encode(),)
    except UnicodeEncodeError:
        return (text.encode(errors="replace"), text.encode(errors="surrogatepass"))
