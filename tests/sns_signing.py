"""Keys, certificates and envelopes as Amazon SNS signs them, for tests of whoever receives them."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

TOPIC: Final = "arn:aws:sns:eu-central-1:111122223333:ses-events-example"
CERTIFICATE_URL: Final = (
    "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-"
    + "0123456789abcdef" * 2
    + ".pem"
)
NOW: Final = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
SALT: Final = b"0123456789abcdef0123456789abcdef"

_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


@cache
def signing_key(name: str) -> rsa.RSAPrivateKey:
    """The same key for the same name, made once a session."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | None = None,
    *,
    now: datetime = NOW,
    days: tuple[int, int] = (-1, 365),
) -> bytes:
    """A self-signed certificate in PEM, valid between these days counted from now."""
    key = key or signing_key("trusted")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now + timedelta(days=days[0]))
    builder = builder.not_valid_after(now + timedelta(days=days[1]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def notification(message: str | Mapping[str, Any] = "{}", **fields: object) -> dict[str, Any]:
    """An unsigned notification; fields replace its own."""
    text = message if isinstance(message, str) else json.dumps(message)
    return {
        "Type": "Notification",
        "MessageId": str(uuid4()),
        "TopicArn": TOPIC,
        "Message": text,
        "Timestamp": timestamp(NOW),
        "SignatureVersion": "1",
        "SigningCertURL": CERTIFICATE_URL,
        "UnsubscribeURL": "https://sns.eu-central-1.amazonaws.com/?Action=Unsubscribe",
        **fields,
    }


def confirmation(kind: str = "SubscriptionConfirmation", **fields: object) -> dict[str, Any]:
    """An unsigned confirmation of a subscription, or of its end."""
    made = notification("You have chosen to subscribe", Type=kind, Token="TOKEN-0123456789")
    made.pop("UnsubscribeURL")
    made["SubscribeURL"] = "http://169.254.169.254/latest/meta-data/"
    return {**made, **fields}


def signed(
    envelope: Mapping[str, Any],
    *,
    key: str = "trusted",
    algorithm: hashes.HashAlgorithm | None = None,
    final_newline: bool = True,
) -> bytes:
    """The envelope as SNS posts it."""
    names = _NOTIFICATION if envelope["Type"] == "Notification" else _CONFIRMATION
    text = "".join(f"{n}\n{envelope[n]}\n" for n in names if isinstance(envelope.get(n), str))
    data = text.encode(errors="replace") if final_newline else text.encode()[:-1]
    version_2 = envelope["SignatureVersion"] == "2"
    chosen = algorithm or (hashes.SHA256() if version_2 else hashes.SHA1())  # noqa: S303 version 1
    signature = signing_key(key).sign(data, padding.PKCS1v15(), chosen)
    return json.dumps({**envelope, "Signature": base64.b64encode(signature).decode()}).encode()


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ses_event(kind: str, detail: Mapping[str, Any], **mail: object) -> dict[str, Any]:
    """A record of event publishing about one mail to one recipient."""
    name = {"Rendering Failure": "failure"}.get(kind, kind[0].lower() + kind[1:])
    return {
        "eventType": kind,
        "mail": {
            "timestamp": "2026-01-15T10:00:00.000Z",
            "messageId": "0107-example-000000",
            "source": "Shop <shop@example.com>",
            "sourceArn": "arn:aws:ses:eu-central-1:111122223333:identity/example.com",
            "sendingAccountId": "111122223333",
            "destination": ["user1@example.com"],
            "headersTruncated": False,
            **mail,
        },
        name: dict(detail),
    }


def delivery(**detail: object) -> dict[str, Any]:
    return {
        "timestamp": "2026-01-15T10:00:02.000Z",
        "processingTimeMillis": 2000,
        "recipients": ["user1@example.com"],
        "smtpResponse": "250 2.0.0 OK",
        "reportingMTA": "a1-1.smtp-out.amazonses.com",
        **detail,
    }


def bounce(*recipients: Mapping[str, Any], **detail: object) -> dict[str, Any]:
    """A hard bounce of user1@example.com, or of the recipients given."""
    hard = {
        "emailAddress": "user1@example.com",
        "action": "failed",
        "status": "5.1.1",
        "diagnosticCode": "smtp; 550 5.1.1 user unknown",
    }
    return {
        "bounceType": "Permanent",
        "bounceSubType": "General",
        "bouncedRecipients": list(recipients) or [hard],
        "timestamp": "2026-01-15T10:00:05.000Z",
        "feedbackId": "0107-feedback-000000",
        **detail,
    }


def complaint(*recipients: str, **detail: object) -> dict[str, Any]:
    named = recipients or ("user1@example.com",)
    return {
        "complainedRecipients": [{"emailAddress": address} for address in named],
        "timestamp": "2026-01-15T12:00:00.000Z",
        "feedbackId": "0107-complaint-000000",
        "complaintSubType": None,
        "complaintFeedbackType": "abuse",
        **detail,
    }
