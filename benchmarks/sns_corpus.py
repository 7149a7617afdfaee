"""Distinct notifications of SES as SNS posts them, signed with RSA-2048 before anything is timed."""

import base64
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from typing import Any, Final
from uuid import UUID

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

TOPIC: Final = "arn:aws:sns:eu-central-1:111122223333:ses-events-example"
CERTIFICATE_NAME: Final = f"SimpleNotificationService-{'0123456789abcdef' * 2}.pem"
TENANT: Final = "shop"
BOUNCE_SHARE: Final = 0.05
COMPLAINT_SHARE: Final = 0.01
_SIGNED: Final = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A sent mail that the notifications are about."""

    number: int
    outbox_id: UUID
    attempt_id: UUID
    recipient: str
    message_id: str
    fate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notification: the request's bytes, and whose address it suppresses, if it does."""

    request: bytes
    suppresses: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The notifications in the order of posting. size: of an average request's body in bytes."""

    mails: Sequence[Mail]
    notices: Sequence[Notice]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The key, and the certificate that belongs to it."""

    pem: bytes
    certificate: bytes


def make_key() -> SigningKey:
    """RSA with 2048 bits, as Amazon's."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return SigningKey(pem=pem, certificate=certificate.public_bytes(serialization.Encoding.PEM))


def make_corpus(key: SigningKey, count: int, seed: int) -> Corpus:
    """So many notifications: of each mail a Send, then a Delivery or a Bounce, rarely a Complaint; half of them signed in each version."""
    rng = random.Random(seed)  # noqa: S311 a script, no secret
    mails: list[Mail] = []
    # An outcome comes some dozens of notifications after its Send, as those of other mails come between.
    due: list[tuple[int, Mail, str]] = []
    while len(due) < count:
        mail = _mail(len(mails), rng)
        mails.append(mail)
        place = 2 * mail.number
        due.append((place, mail, "Send"))
        if mail.fate == "Bounce":
            due.append((place + 61, mail, "Bounce"))
        else:
            due.append((place + 61, mail, "Delivery"))
        if mail.fate == "Complaint":
            due.append((place + 131, mail, "Complaint"))
    due.sort(key=lambda d: d[0])
    wanted = [(mail, kind, rng.getrandbits(128)) for _, mail, kind in due[:count]]
    chunks = [wanted[at : at + _CHUNK] for at in range(0, count, _CHUNK)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        made = pool.map(_signed_requests, [key.pem] * len(chunks), chunks)
        requests = [request for chunk in made for request in chunk]
    notices = [
        Notice(request=r, suppresses=m.recipient if k in ("Bounce", "Complaint") else None)
        for r, (m, k, _) in zip(requests, wanted, strict=True)
    ]
    size = sum(len(body_of(r)) for r in requests) // len(requests)
    return Corpus(mails=mails, notices=notices, size=size)


def body_of(request: bytes) -> bytes:
    """The body of a request."""
    return request.partition(b"\r\n\r\n")[2]


def _mail(number: int, rng: random.Random) -> Mail:
    luck = rng.random()
    fate = "Delivery"
    if luck < BOUNCE_SHARE:
        fate = "Bounce"
    elif luck < BOUNCE_SHARE + COMPLAINT_SHARE:
        fate = "Complaint"
    return Mail(
        number=number,
        outbox_id=_uuid_v7(rng),
        attempt_id=_uuid_v7(rng),
        recipient=f"user-{rng.getrandbits(40):010x}-{number}@example.com",
        message_id=f"0107{rng.getrandbits(48):012x}-{UUID(int=rng.getrandbits(128))}-000000",
        fate=fate,
    )


def _uuid_v7(rng: random.Random) -> UUID:
    milliseconds = int(datetime.now(UTC).timestamp() * 1000)
    return UUID(
        int=(milliseconds << 80)
        | (7 << 76)
        | (rng.getrandbits(12) << 64)
        | (2 << 62)
        | rng.getrandbits(62)
    )


def _signed_requests(pem: bytes, wanted: Sequence[tuple[Mail, str, int]]) -> list[bytes]:
    key = serialization.load_pem_private_key(pem, password=None)
    assert isinstance(key, rsa.RSAPrivateKey)  # noqa: S101 what make_key made
    return [_signed_request(key, mail, kind, bits) for mail, kind, bits in wanted]


def _signed_request(key: rsa.RSAPrivateKey, mail: Mail, kind: str, bits: int) -> bytes:
    version = "1" if bits & 1 else "2"
    fields = {
        "Type": "Notification",
        "MessageId": str(UUID(int=bits)),
        "TopicArn": TOPIC,
        "Subject": "Amazon SES Email Event Notification",
        "Message": orjson.dumps(_record(mail, kind)).decode() + "\n",
        "Timestamp": _time(datetime.now(UTC)),
    }
    text = "".join(f"{name}\n{fields[name]}\n" for name in _SIGNED).encode()
    algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()  # noqa: S303 what version 1 is
    signature = key.sign(text, padding.PKCS1v15(), algorithm)
    envelope = {
        **fields,
        "SignatureVersion": version,
        "Signature": base64.b64encode(signature).decode(),
        "SigningCertURL": f"https://sns.eu-central-1.amazonaws.com/{CERTIFICATE_NAME}",
        "UnsubscribeURL": "https://sns.eu-central-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn="
        f"{TOPIC}:0f0e0d0c-0000-4000-8000-000000000000",
    }
    body = orjson.dumps(envelope, option=orjson.OPT_INDENT_2)
    return b"".join(_head(fields["MessageId"], len(body))) + body


def _head(message_id: str, length: int) -> Iterator[bytes]:
    lines = (
        "POST /sns HTTP/1.1",
        "x-amz-sns-message-type: Notification",
        f"x-amz-sns-message-id: {message_id}",
        f"x-amz-sns-topic-arn: {TOPIC}",
        f"x-amz-sns-subscription-arn: {TOPIC}:0f0e0d0c-0000-4000-8000-000000000000",
        f"Content-Length: {length}",
        "Content-Type: text/plain; charset=UTF-8",
        "Host: events.example.com",
        "Connection: Keep-Alive",
        "User-Agent: Amazon Simple Notification Service Agent",
        "Accept-Encoding: gzip,deflate",
        "",
        "",
    )
    yield "\r\n".join(lines).encode()


def _record(mail: Mail, kind: str) -> dict[str, Any]:
    return {
        "eventType": kind,
        "mail": _mail_object(mail, kind),
        kind.lower(): _detail(mail, kind),
    }


def _mail_object(mail: Mail, kind: str) -> dict[str, Any]:
    sender, subject = "Example Shop <mail@example.com>", f"Your order {mail.number}"
    headers = {
        "From": sender,
        "To": mail.recipient,
        "Subject": subject,
        "MIME-Version": "1.0",
        "Content-Type": 'multipart/alternative; boundary="----=_Part_0001"',
    }
    tags = {
        "ses:operation": ["SendEmail"],
        "ses:configuration-set": ["mailstreams"],
        "ses:source-ip": ["192.0.2.1"],
        "ses:from-domain": ["example.com"],
        "ses:caller-identity": ["mailstreams-sender"],
        "attempt": [str(mail.attempt_id)],
        "outbox": [str(mail.outbox_id)],
        "tenant": [TENANT],
        "traceparent": [f"00-{mail.outbox_id.hex}-{mail.attempt_id.hex[:16]}-01"],
    }
    if kind != "Send":
        tags["ses:outgoing-ip"] = ["192.0.2.10"]
    return {
        "timestamp": _time(datetime.now(UTC)),
        "source": sender,
        "sourceArn": "arn:aws:ses:eu-central-1:111122223333:identity/example.com",
        "sendingAccountId": "111122223333",
        "messageId": mail.message_id,
        "destination": [mail.recipient],
        "headersTruncated": False,
        "headers": [{"name": name, "value": value} for name, value in headers.items()],
        "commonHeaders": {
            "from": [sender],
            "to": [mail.recipient],
            "messageId": mail.message_id,
            "subject": subject,
        },
        "tags": tags,
    }


def _detail(mail: Mail, kind: str) -> dict[str, Any]:
    now = _time(datetime.now(UTC))
    match kind:
        case "Delivery":
            return {
                "timestamp": now,
                "processingTimeMillis": 812,
                "recipients": [mail.recipient],
                "smtpResponse": "250 2.0.0 OK",
                "remoteMtaIp": "198.51.100.20",
                "reportingMTA": "a1-2.smtp-out.amazonses.com",
            }
        case "Bounce":
            return {
                "feedbackId": mail.message_id[::-1],
                "bounceType": "Permanent",
                "bounceSubType": "General",
                "bouncedRecipients": [
                    {
                        "emailAddress": mail.recipient,
                        "action": "failed",
                        "status": "5.1.1",
                        "diagnosticCode": f"smtp; 550 5.1.1 <{mail.recipient}>: user unknown",
                    }
                ],
                "timestamp": now,
                "reportingMTA": "dns; mx.example.com",
            }
        case "Complaint":
            return {
                "feedbackId": mail.message_id[::-1],
                "complaintSubType": None,
                "complainedRecipients": [{"emailAddress": mail.recipient}],
                "timestamp": now,
                "userAgent": "ExampleFeedbackLoop/1.0",
                "complaintFeedbackType": "abuse",
                "arrivalDate": now,
            }
        case _:
            return {}


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
